"""Which nodes of a domain the pods of its groups and their spares take (calculus.md, Inside a domain).

The quick layout serves domains of any size, also of a hundred thousand nodes: a group takes the largest node until one
has slots for the rest of it, which is the fewest nodes for a group alone. A small domain is searched for a better
layout (`search`).
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from gkm.packing.nodes.demands import GroupDemand, GroupNodes, NodeSlots, Numbered, Slack
from gkm.packing.nodes.search import MAX_NODES, Search, fewest_nodes, least_costs

MAX_STEPS_OF_RUN = 150_000
"""Steps of searches in all domains of a run: less than half a second."""


def lay_out(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[GroupNodes, ...]:
    """Return where the groups of one domain go. The nodes must have slots enough for them and their spares."""
    return Layouts().lay_out(nodes, groups)


@dataclass(slots=True)
class Layouts:
    """The layouts of a run's domains. Domains that are alike are laid out once, and share a limit of steps."""

    steps: int = MAX_STEPS_OF_RUN
    _known: dict[tuple[object, ...], Numbered] = field(default_factory=dict)

    def lay_out(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[GroupNodes, ...]:
        """Return where the groups of one domain go; of each node only scopes that these groups have are named."""
        rows = sorted([(-node.slots, node.rest, node.name, node) for node in nodes if node.slots])
        ordered = [row[-1] for row in rows]
        if ordered and ordered[0].slots == 1 and len({group.scope for group in groups}) == 1:
            return _sequential(ordered, groups)
        found = self._cached(ordered, groups)
        names = [node.name for node in ordered]
        return tuple(
            [
                GroupNodes(
                    tuple([(names[at], count) for at, count in own.items()]), tuple([names[at] for at in spares])
                )
                for own, spares in zip(found.pods, found.spares, strict=True)
            ]
        )

    def _cached(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
        if len(nodes) > MAX_NODES:
            return lay_out_greedily(nodes, groups)
        alike = tuple([node[1:] for node in nodes]), tuple(groups)
        if alike not in self._known:
            self._known[alike] = self._best(nodes, groups)
        return self._known[alike]

    def _best(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
        found = lay_out_greedily(nodes, groups)
        each = [least_costs(nodes, group) for group in groups]
        used = fewest_nodes([node.slots for node in nodes], sum(group.pods for group in groups))
        bound = sum(shared for shared, _ in each), max(used, sum(pairs for _, pairs in each))
        if self.steps <= 0 or found.costs <= bound:
            return found
        search = Search(nodes, groups, found.costs)
        better = search.better()
        self.steps -= search.steps
        return better or found


def _sequential(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[GroupNodes, ...]:
    """Return the layout where every node has one slot: no group has part of a node, no spare is beside its group."""
    names = iter([node.name for node in nodes])
    pods = [tuple([(name, 1) for name in islice(names, group.pods)]) for group in groups]
    return tuple([GroupNodes(own, tuple(islice(names, group.spares))) for own, group in zip(pods, groups, strict=True)])


def lay_out_greedily(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
    """Return a layout. Nodes come in their order of preference; they must have slots enough."""
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
        # One scope harms no other: then there is nothing to count.
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
            raise AssertionError("the nodes have slots enough")
        self._remove(best[-1], scope, -best[0])
        return best[-1], -best[0]

    def take_spares(self, scope: int, most: int, beside: Container[int]) -> list[int]:
        """Take up to so many slots, each of the tightest node that is none of some."""
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
        """Return the node with the fewest slots left, but `least`, that is none of some; None if there is none."""
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
