"""The best layout of a small domain: fewest spares beside their group, then fewest (group, node) pairs.

What is searched are the nodes of each group, and how many of its spares are beside it. Whether pods and spares fit
with such a choice is Hall's theorem over sets of nodes: no set has fewer slots than is confined to it. Branches are cut
where what is decided costs as much as the best layout known, with the least that every further group costs.

A search that ends early is followed by an integer program. It counts groups that are alike instead of telling them
apart: a column says how many of them are on a set of nodes with so many spares beside them. Whatever takes a set of
nodes flows to these nodes, none of which has more than its slots.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import Integers
from gkm.packing.nodes.demands import Costs, GroupDemand, NodeChoice, NodeSlots, Numbered, slots_of
from gkm.packing.program import SECONDS, Program, SearchLimits, Sum, total

MAX_NODES = 8
"""Sets of nodes double with each."""
MAX_STEPS = 5_000
"""Choices that are looked at in a domain before the integer program is made: some 15 ms."""
PROGRAM_STEPS = 10_000
"""What such a program counts as."""
_NODES = 2_000


def least_costs(nodes: Sequence[NodeSlots], group: GroupDemand) -> Costs:
    """Return the least that a group costs in any layout."""
    slots = sorted((node.slots for node in nodes if group.scope in node.scopes), reverse=True)
    pairs = fewest_nodes(slots, group.pods)
    apart = sum(slots) - max(group.pods, slots[-1]) if pairs else group.spares
    return max(0, group.spares - apart), pairs


def fewest_nodes(slots: Sequence[int], pods: int) -> int:
    """Return how many nodes hold some pods at least; the largest come first."""
    count = 0
    while pods > 0:
        pods -= slots[count]
        count += 1
    return count


class Search:
    """A depth-first search, group by group, and the integer program where it ends early. `steps` are what it took."""

    def __init__(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand], known: Costs) -> None:
        self.steps = 0
        self._nodes, self._groups = nodes, groups
        self._sets = np.arange(1 << len(nodes))
        self._best, self._found = known, list[NodeChoice]()
        self._takes = [sum(1 << at for at, node in enumerate(nodes) if one.scope in node.scopes) for one in groups]
        self._further = [(0, 0)]
        for group in reversed(groups):
            shared, pairs = least_costs(nodes, group)
            self._further.append((self._further[-1][0] + shared, self._further[-1][1] + pairs))
        self._further.reverse()

    def better(self) -> Numbered | None:
        """Return the best layout that was found; None if none is better than the known one."""
        free = np.zeros(len(self._sets), dtype=np.int64)
        for at, node in enumerate(self._nodes):
            free += (self._sets >> at & 1) * node.slots
        for group, takes in zip(self._groups, self._takes, strict=True):
            free -= self._around(takes) * (group.pods + group.spares)
        self._descend(free, (0, 0), [])
        if self.steps >= MAX_STEPS:
            self.steps += PROGRAM_STEPS
            solved = _best_choices(self._nodes, self._groups)
            if solved is not None and solved[0] < self._best:
                self._best, self._found = solved
        return self._as_layout() if self._found else None

    def _around(self, nodes: int) -> NDArray[np.bool_]:
        """Return which sets contain all of some nodes: what may take only these is confined to each of the sets."""
        found: NDArray[np.bool_] = (self._sets & nodes) == nodes
        return found

    def _descend(self, free: Integers, costs: Costs, chosen: list[NodeChoice]) -> None:
        number = len(chosen)
        if number == len(self._groups):
            self._best, self._found = costs, list(chosen)
            return
        group, takes = self._groups[number], self._takes[number]
        further = self._further[number + 1]
        relaxed = free + self._around(takes) * (group.pods + group.spares)
        for nodes in self._candidates(group, takes, chosen):
            for beside in range(group.spares + 1):
                reached = costs[0] + beside, costs[1] + nodes.bit_count()
                if (reached[0] + further[0], reached[1] + further[1]) >= self._best or self.steps >= MAX_STEPS:
                    break
                choice = NodeChoice(nodes, beside)
                if number and group == self._groups[number - 1] and self._order(choice) < self._order(chosen[-1]):
                    continue  # groups that are alike change places without cost: these come in one order
                self.steps += 4
                left = relaxed - self._around(nodes) * (group.pods + beside)
                left -= self._around(takes & ~nodes) * (group.spares - beside)
                if left.min() >= 0:
                    self._descend(left, reached, [*chosen, choice])

    def _order(self, choice: NodeChoice) -> tuple[int, int, int, int]:
        """Return the order in which groups that are alike have their choices, that of the search itself."""
        return choice.nodes.bit_count(), slots_of(self._nodes, choice.nodes), choice.nodes, choice.beside

    def _candidates(self, group: GroupDemand, takes: int, chosen: Sequence[NodeChoice]) -> Iterator[int]:
        """Yield sets of nodes that hold the pods of a group: few nodes first, then those with the fewest slots.

        Of nodes that are alike, also in what earlier groups take of them, the first ones stand for all.
        """
        if not group.pods:
            yield 0
            return
        alike: dict[tuple[int, frozenset[int], tuple[int, ...]], list[int]] = {}
        for at, node in enumerate(self._nodes):
            if takes >> at & 1:
                taken = tuple([choice.nodes >> at & 1 for choice in chosen])
                alike.setdefault((node.slots, node.scopes, taken), []).append(at)
        found = []
        for counts in product(*[range(len(some) + 1) for some in alike.values()]):
            slots = sum(count * kind[0] for count, kind in zip(counts, alike, strict=True))
            if slots >= group.pods:
                some = [at for count, ats in zip(counts, alike.values(), strict=True) for at in ats[:count]]
                found.append((len(some), slots, sum(1 << at for at in some)))
            self.steps += 1
        for _, _, nodes in sorted(found):
            yield nodes

    def _as_layout(self) -> Numbered:
        """Return a layout with the choices that were found: pods fill whole nodes first, spares take the tightest."""
        flow = _Flow(self._nodes, self._sets)
        demands = []
        for group, takes, choice in zip(self._groups, self._takes, self._found, strict=True):
            apart = group.spares - choice.beside
            demands.append(((choice.nodes, group.pods), (takes & ~choice.nodes, apart), (choice.nodes, choice.beside)))
        for parts in demands:
            for nodes, count in parts:
                flow.demand(nodes, count)
        pods = [flow.assign(*parts[0], whole=True) for parts in demands]
        spares = [flow.assign(*parts[1]) + flow.assign(*parts[2]) for parts in demands]
        return Numbered([{at: own.count(at) for at in own} for own in pods], spares)


class _Flow:
    """Pods placed one after another so that the demands of all others still fit."""

    def __init__(self, nodes: Sequence[NodeSlots], sets: Integers) -> None:
        self._nodes, self._sets = nodes, sets
        self._left = [node.slots for node in nodes]
        self._free: Integers = np.zeros(len(sets), dtype=np.int64)
        for at, slots in enumerate(self._left):
            self._free += (sets >> at & 1) * slots

    def demand(self, nodes: int, count: int) -> None:
        """Add pods that some nodes take."""
        self._free -= ((self._sets & nodes) == nodes) * count

    def assign(self, nodes: int, count: int, *, whole: bool = False) -> list[int]:
        """Return the node of each of so many pods that were demanded."""
        placed: list[int] = []
        while len(placed) < count:
            best: tuple[int, int, int, int] | None = None
            for at, node in enumerate(self._nodes):
                most = min(count - len(placed), self._allowed(nodes, at)) if nodes >> at & 1 else 0
                if most:
                    filled = most if whole and most == self._left[at] else 0
                    best = min(best or (1, 0, 0, 0), (-filled, self._left[at], node.rest, at))
            if best is None:
                raise AssertionError("the choice was found to fit")
            at = best[-1]
            taken = min(count - len(placed), self._allowed(nodes, at)) if whole else 1
            self._free += ((self._sets & nodes) == nodes) * taken - (self._sets >> at & 1) * taken
            self._left[at] -= taken
            placed += [at] * taken
        return placed

    def _allowed(self, nodes: int, at: int) -> int:
        harmed = (self._sets >> at & 1 == 1) & ((self._sets & nodes) != nodes)
        return int(min(self._left[at], self._free[harmed].min(initial=self._left[at])))


def _best_choices(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[Costs, list[NodeChoice]] | None:
    """Return what groups cost at least, the nodes of each, and the spares beside it; None if limits end the search."""
    # 1. A column for each choice counts the groups that have it; as many as there are of each kind have one.
    # 2. Pods and spares of a choice flow from its set of nodes to these nodes, none of which has more than its slots.
    # 3. Objectives: spares beside their group, pairs of groups and nodes, and then the first choices.
    program = Program()
    columns: dict[GroupDemand, dict[NodeChoice, Sum]] = {}
    needs: dict[int, Sum] = {}
    for group, count in Counter(groups).items():
        takes = sum(1 << at for at, node in enumerate(nodes) if group.scope in node.scopes)
        found = columns[group] = {choice: program.variable(count) for choice in _choices(nodes, group, takes)}
        program.row(total(found.values()), least=count, most=count)
        for (of, beside), column in found.items():
            needs.setdefault(of, Sum()).add(column, group.pods + beside)
            needs.setdefault(takes & ~of, Sum()).add(column, group.spares - beside)
    taken = [Sum() for _ in nodes]
    for of, need in needs.items():
        flows = {at: program.variable(node.slots) for at, node in enumerate(nodes) if need and of >> at & 1}
        for at, flow in flows.items():
            taken[at].add(flow)
        program.equal(need, total(flows.values()))
    for node, pods in zip(nodes, taken, strict=True):
        program.row(pods, most=node.slots)
    every = [item for found in columns.values() for item in found.items()]
    shared = total(column * choice.beside for choice, column in every)
    pairs = total(column * choice.nodes.bit_count() for choice, column in every)
    order = total(column * number for found in columns.values() for number, column in enumerate(found.values()))
    try:
        solution = program.solve([shared, pairs, order], SearchLimits.within(SECONDS, _NODES))
    except TooLargeError:
        return None
    if solution is None:
        raise AssertionError("the nodes have slots enough")
    chosen = {
        group: iter([choice for choice, column in found.items() for _ in range(solution.of(column))])
        for group, found in columns.items()
    }
    return (solution.reached[0], solution.reached[1]), [next(chosen[group]) for group in groups]


def _choices(nodes: Sequence[NodeSlots], group: GroupDemand, takes: int) -> Iterator[NodeChoice]:
    """Yield sets of nodes that hold the pods of a group and the spares beside it: those that cost least come first."""
    some = [of for of in range(1 << len(nodes)) if of & ~takes == 0 and of.bit_count() <= group.pods]
    holding = [of for of in some if slots_of(nodes, of) >= group.pods]
    for of in sorted(holding, key=lambda of: (of.bit_count(), slots_of(nodes, of), of)):
        yield from (NodeChoice(of, beside) for beside in range(group.spares * (of > 0) + 1))
