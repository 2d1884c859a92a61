"""Choose the nodes of a domain for the pods of its groups and their spares (calculus.md, Inside a domain).

The quick layout serves domains of any size, also of a hundred thousand nodes: a group takes the largest node until one
has slots for the rest of it, which is the fewest nodes for a group alone.

A small domain is searched for the best layout: fewest spares beside their group, then fewest (group, node) pairs. The
search covers the nodes of each group, and how many of its spares are beside it. Whether pods and spares fit with such a
choice is Hall's theorem over sets of nodes. Branches are cut where the decisions so far cost as much as the best layout
known, with the least that every further group costs.

A search that ends early is followed by an integer program. It counts groups that are alike instead of telling them
apart: a column says how many of them are on a set of nodes with so many spares beside them. All that take a set of
nodes flow to these nodes, within the slots of each.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from gkm.packing.inventory import Integers
from gkm.packing.nodes.demands import Costs, GroupDemand, GroupNodes, NodeChoice, NodeSlots, Numbered, Slack, slots_of
from gkm.packing.program import SECONDS, Program, SearchLimits, Sum, total
from gkm.packing.values import TooLargeError

MAX_STEPS_OF_RUN = 150_000
"""Limit of search steps over all domains of a run: less than half a second."""
MAX_NODES = 8
"""Limit of nodes for the search: the number of sets of nodes doubles with each."""
MAX_STEPS = 5_000
"""Limit of choices that the search tries in a domain before the integer program: about 15 ms."""
PROGRAM_STEPS = 10_000
"""The cost of one integer program in search steps."""
_NODES = 2_000


@dataclass(slots=True)
class Layouts:
    """Computes the layouts of a run's domains. Equal domains are laid out once; all share a limit of search steps."""

    steps: int = MAX_STEPS_OF_RUN
    _known: dict[tuple[object, ...], Numbered] = field(default_factory=dict)

    def lay_out(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[GroupNodes, ...]:
        """Return the nodes of the pods and spares of one domain's groups."""
        rows = sorted([(-node.slots, node.rest, node.name, node) for node in nodes if node.slots])
        ordered = [row[-1] for row in rows]
        if ordered and ordered[0].slots == 1 and len({group.scope for group in groups}) == 1:
            return _sequential(ordered, groups)
        found = self._numbered(ordered, groups)
        names = [node.name for node in ordered]
        return tuple(
            [
                GroupNodes(
                    tuple([(names[at], count) for at, count in own.items()]), tuple([names[at] for at in spares])
                )
                for own, spares in zip(found.pods, found.spares, strict=True)
            ]
        )

    def _numbered(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
        alike = tuple([node[1:] for node in nodes]), tuple(groups)
        if alike in self._known:
            return self._known[alike]
        found = lay_out_greedily(nodes, groups)
        if len(nodes) <= MAX_NODES:
            found = self._best(nodes, groups, found)
        self._known[alike] = found
        return found

    def _best(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand], found: Numbered) -> Numbered:
        """Return the best layout that the search finds, or the one that was found before."""
        each = [least_costs(nodes, group) for group in groups]
        used = fewest_nodes([node.slots for node in nodes], sum(group.pods for group in groups))
        bound = sum(shared for shared, _ in each), max(used, sum(pairs for _, pairs in each))
        if self.steps > 0 and found.costs > bound:
            search = Search(nodes, groups, found.costs)
            found = search.better() or found
            self.steps -= search.steps
        return found


def _sequential(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[GroupNodes, ...]:
    """Return the layout where every node has one slot: no group has part of a node, no spare is beside its group."""
    names = iter([node.name for node in nodes])
    pods = [tuple([(name, 1) for name in islice(names, group.pods)]) for group in groups]
    return tuple([GroupNodes(own, tuple(islice(names, group.spares))) for own, group in zip(pods, groups, strict=True)])


def lay_out_greedily(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
    """Return a layout that fills the nodes in the given order; they must have enough slots."""
    # 1. Pods of one group after another take the largest node, and for the rest the tightest.
    # 2. Spares take the tightest node that their group is not on, then any node.
    # 3. Spares beside their group change places with others.
    free = _FreeSlots(nodes, groups)
    pods: list[dict[int, int]] = []
    for group in groups:
        own: dict[int, int] = {}
        left = group.pods
        while left:
            at, count = free.take(group.scope, left)
            own[at] = own.get(at, 0) + count
            left -= count
        pods.append(own)
    spares = [free.take_spares(group.scope, group.spares, own) for group, own in zip(groups, pods, strict=True)]
    for number, group in enumerate(groups):
        while len(spares[number]) < group.spares:
            spares[number].append(free.take(group.scope, 1)[0])
    found = Numbered(pods, spares)
    _swap(nodes, groups, found)
    return found


class _FreeSlots:
    """The slots left of every node of a domain, by what scopes take it."""

    def __init__(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> None:
        self._nodes = nodes
        self._left = [node.slots for node in nodes]
        members: dict[frozenset[int], list[int]] = {}
        slots: Counter[frozenset[int]] = Counter()
        for at, node in enumerate(nodes):
            members.setdefault(node.scopes, []).append(at)
            slots[node.scopes] += node.slots
        self._kinds = {kind: _Nodes(nodes, self._left, some) for kind, some in members.items()}
        demand: Counter[int] = Counter()
        for group in groups:
            demand[group.scope] += group.pods + group.spares
        # One scope harms no other: then no count is needed.
        self._slack = Slack(slots if len(demand) > 1 else {}, demand)

    def take(self, scope: int, most: int) -> tuple[int, int]:
        """Take up to so many slots of one node, as many as can be, of the tightest node that has them."""
        best = None
        for kind, some in self._kinds.items():
            count = min(most, self._slack.allowed(scope, kind), some.largest()) if scope in kind else 0
            if count and (at := some.tightest(count)) is not None:
                found = -count, self._left[at], self._nodes[at].rest, at
                best = found if best is None else min(best, found)
        if best is None:
            raise AssertionError("the nodes have too few slots for the groups")
        self._remove(best[-1], scope, -best[0])
        return best[-1], -best[0]

    def take_spares(self, scope: int, most: int, beside: Container[int]) -> list[int]:
        """Take up to so many slots, each of the tightest node outside a given set."""
        taken: list[int] = []
        while len(taken) < most:
            found = []
            for kind, some in self._kinds.items():
                if scope in kind and self._slack.allowed(scope, kind) and (at := some.tightest(1, beside)) is not None:
                    found.append((self._left[at], self._nodes[at].rest, at))
            if not found:
                break
            taken.append(min(found)[-1])
            self._remove(taken[-1], scope, 1)
        return taken

    def _remove(self, at: int, scope: int, count: int) -> None:
        kind = self._nodes[at].scopes
        self._slack.take(scope, kind, count)
        self._left[at] -= count
        self._kinds[kind].file(at)


class _Nodes:
    """Nodes that the same scopes take, filed by the slots left.

    Nodes only ever lose slots, so an entry under a number that is not the node's any more is dropped when it comes up.
    """

    def __init__(self, nodes: Sequence[NodeSlots], left: Sequence[int], members: Iterable[int]) -> None:
        self._nodes = nodes
        self._left = left
        # Nodes come with the largest first, then in their order: so what is filed here is sorted, and a heap.
        self._filed: dict[int, list[tuple[int, int]]] = {}
        for at in members:
            self._filed.setdefault(left[at], []).append((nodes[at].rest, at))
        self._sizes = sorted(self._filed)

    def file(self, at: int) -> None:
        """File a node under the slots that it has left."""
        size = self._left[at]
        if not size:
            return
        if size not in self._filed:
            self._filed[size] = []
            insort(self._sizes, size)
        heappush(self._filed[size], (self._nodes[at].rest, at))

    def largest(self) -> int:
        """Return the most slots that a node has left."""
        while self._sizes and not self._current(self._sizes[-1]):
            del self._filed[self._sizes.pop()]
        return self._sizes[-1] if self._sizes else 0

    def tightest(self, least: int, beside: Container[int] = ()) -> int | None:
        """Return the node with the fewest slots left, but `least`, outside a given set; None without such a node."""
        for index in range(bisect_left(self._sizes, least), len(self._sizes)):
            entries = self._current(self._sizes[index])
            passed = []
            while entries and entries[0][1] in beside:
                passed.append(heappop(entries))
                entries = self._current(self._sizes[index])
            found = entries[0][1] if entries else None
            for entry in passed:
                heappush(entries, entry)
            if found is not None:
                return found
        return None

    def _current(self, size: int) -> list[tuple[int, int]]:
        entries = self._filed[size]
        while entries and self._left[entries[0][1]] != size:
            heappop(entries)
        return entries


def _swap(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand], found: Numbered) -> None:
    """Let spares that share a node with their group change places with others, while fewer share one after it."""
    sharing = [
        (number, which)
        for number, own in enumerate(found.pods)
        for which, at in enumerate(found.spares[number])
        if at in own
    ]
    while any(_swapped(nodes, groups, found, number, which) for number, which in sharing):
        pass


def _swapped(
    nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand], found: Numbered, number: int, which: int
) -> bool:
    own, at = found.pods[number], found.spares[number][which]
    if at not in own:
        return False
    for other, others in enumerate(found.pods):
        if groups[other].scope not in nodes[at].scopes:
            continue
        for place, there in enumerate(found.spares[other]):
            apart = there not in own and (at in others) <= (there in others)
            if apart and groups[number].scope in nodes[there].scopes:
                found.spares[number][which], found.spares[other][place] = there, at
                return True
    return False


def least_costs(nodes: Sequence[NodeSlots], group: GroupDemand) -> Costs:
    """Return a lower bound of the costs of one group in any layout."""
    slots = sorted((node.slots for node in nodes if group.scope in node.scopes), reverse=True)
    pairs = fewest_nodes(slots, group.pods)
    apart = sum(slots) - max(group.pods, slots[-1]) if pairs else group.spares
    return max(0, group.spares - apart), pairs


def fewest_nodes(slots: Sequence[int], pods: int) -> int:
    """Return the smallest number of nodes that hold these pods."""
    count = 0
    while pods > 0:
        pods -= slots[count]
        count += 1
    return count


class Search:
    """A depth-first search for a domain's best layout, group by group; an integer program follows if it is cut off."""

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
        """Return a better layout than the known one, the best that was found; None if the known one is the best."""
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
        """Return the order of choices for groups that are alike; the search has the same order."""
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
                raise AssertionError("the pods do not fit, though the choice was found to fit")
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
    # 2. Pods and spares of a choice flow from its set of nodes to these nodes, within the slots of each.
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
        raise AssertionError("the nodes have too few slots for the groups")
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
