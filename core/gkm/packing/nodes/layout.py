"""Which nodes of a domain the pods of its groups and their spares take (calculus.md, Inside a domain)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from gkm.packing.nodes.demands import DomainLayout, GroupDemand, GroupNodes, NodeSlots, Numbered
from gkm.packing.nodes.greedy import lay_out_greedily
from gkm.packing.nodes.search import MAX_NODES, Search, fewest_nodes, least_costs

MAX_STEPS_OF_RUN = 150_000
"""Steps of searches in all domains of a run: less than half a second."""


def lay_out(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> DomainLayout:
    """Return where the groups of one domain go. The nodes must have slots enough for them and their spares."""
    return Layouts().lay_out(nodes, groups)


@dataclass(slots=True)
class Layouts:
    """The layouts of a run's domains. Domains that are alike are laid out once, and share a limit of steps."""

    steps: int = MAX_STEPS_OF_RUN
    _known: dict[tuple[object, ...], Numbered] = field(default_factory=dict)

    def lay_out(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> DomainLayout:
        """Return where the groups of one domain go; of each node only scopes that these groups have are named."""
        rows = sorted([(-node.slots, node.rest, node.name, node) for node in nodes if node.slots])
        ordered = [row[-1] for row in rows]
        if ordered and ordered[0].slots == 1 and len({group.scope for group in groups}) == 1:
            return _sequential(ordered, groups)
        found = self._cached(ordered, groups)
        names = [node.name for node in ordered]
        placed = [
            GroupNodes(tuple([(names[at], count) for at, count in own.items()]), tuple([names[at] for at in spares]))
            for own, spares in zip(found.pods, found.spares, strict=True)
        ]
        return DomainLayout(tuple(placed), *found.costs)

    def _cached(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
        if len(nodes) > MAX_NODES:
            return lay_out_greedily(nodes, groups)
        alike = tuple([node[1:] for node in nodes]), tuple(groups)
        if alike not in self._known:
            self._known[alike] = self._best(nodes, groups)
        return self._known[alike]

    def _best(self, nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Numbered:
        found = lay_out_greedily(nodes, groups)
        if self.steps <= 0 or found.costs <= _bound(nodes, groups):
            return found
        search = Search(nodes, groups, found.costs)
        better = search.better()
        self.steps -= search.steps
        return better or found


def _bound(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[int, int]:
    each = [least_costs(nodes, group) for group in groups]
    used = fewest_nodes([node.slots for node in nodes], sum(group.pods for group in groups))
    return sum(shared for shared, _ in each), max(used, sum(pairs for _, pairs in each))


def _sequential(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> DomainLayout:
    """Return the layout where every node has one slot: no group has part of a node, no spare is beside its group."""
    names = iter([node.name for node in nodes])
    pods = [tuple([(name, 1) for name in islice(names, group.pods)]) for group in groups]
    placed = tuple(
        [GroupNodes(own, tuple(islice(names, group.spares))) for own, group in zip(pods, groups, strict=True)]
    )
    return DomainLayout(placed, 0, sum(group.pods for group in groups))
