"""What the layout of a domain is made from, and what it is."""

from collections.abc import Sequence
from typing import NamedTuple

ANY_SCOPE = frozenset({0})

Costs = tuple[int, int]
"""Spares that share a node with their group, and pairs of a group and a node that it is on."""


class NodeSlots(NamedTuple):
    """A node with free slots for pods of this run. `rest` are free GPUs that make no slot; `scopes` take the node."""

    name: str
    slots: int
    rest: int
    scopes: frozenset[int] = ANY_SCOPE


class GroupDemand(NamedTuple):
    """Pods of a group and those of its spares that stay. Spares of groups of other domains are a group without pods."""

    pods: int
    spares: int
    scope: int = 0


class NodeChoice(NamedTuple):
    """The nodes of a group, as bits, and how many of its spares are beside it."""

    nodes: int
    beside: int


class GroupNodes(NamedTuple):
    """Where a group is: its pods by node, and the node of each spare."""

    pods: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]


class DomainLayout(NamedTuple):
    """Where all groups of a domain are, how many spares share a node with their group, and (group, node) pairs."""

    groups: tuple[GroupNodes, ...]
    shared: int
    pairs: int


class Numbered(NamedTuple):
    """A layout by the numbers of nodes: of each group its pods by node, and the nodes of its spares."""

    pods: list[dict[int, int]]
    spares: list[list[int]]

    @property
    def costs(self) -> Costs:
        """Return the spares that share a node with their group, and the (group, node) pairs."""
        both = zip(self.pods, self.spares, strict=True)
        return sum(at in own for own, nodes in both for at in nodes), sum(map(len, self.pods))


def slots_of(nodes: Sequence[NodeSlots], some: int) -> int:
    """Return the slots of some nodes, which are bits of a number."""
    return sum(node.slots for at, node in enumerate(nodes) if some >> at & 1)
