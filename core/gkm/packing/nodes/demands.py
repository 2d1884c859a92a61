"""Inputs and results of the layout of a domain, and the slack of scopes that share nodes.

By Hall's theorem demands fit if and only if every choice of scopes asks for no more slots than the nodes have that at
least one of them takes. The slots left to each choice are its slack; a slot that one scope takes costs slack of the
choices without that scope.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.domains.capacity import Capacity
from gkm.packing.inventory import Integers

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
    """Pods of a group, and its spares that stay. Spares of groups of other domains are a group without pods."""

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


class Numbered(NamedTuple):
    """A layout by the numbers of nodes: of each group its pods by node, and the nodes of its spares."""

    pods: list[dict[int, int]]
    spares: list[list[int]]

    @property
    def costs(self) -> Costs:
        """Return the spares that share a node with their group, and the (group, node) pairs."""
        both = zip(self.pods, self.spares, strict=True)
        return sum(at in own for own, nodes in both for at in nodes), sum(map(len, self.pods))


def free_nodes(capacity: Capacity, domain: int, scopes: frozenset[int]) -> list[NodeSlots]:
    """Return the nodes of a domain that have slots for some scopes, each with the scopes that take it."""
    members = capacity.inventory.in_domain(domain)
    here = slice(members.start, members.stop)
    slots, kinds = capacity.node_slots[here].tolist(), capacity.node_kinds[here].tolist()
    taken = [kind & scopes for kind in capacity.kinds]
    return [
        NodeSlots(node.name, count, node.free % capacity.pod_gpus, taken[kind])
        for node, count, kind in zip(capacity.inventory.nodes[here], slots, kinds, strict=True)
        if count and taken[kind]
    ]


def slots_of(nodes: Sequence[NodeSlots], some: int) -> int:
    """Return the slots of some nodes, which are bits of a number."""
    return sum(node.slots for at, node in enumerate(nodes) if some >> at & 1)


Scopes = frozenset[int]
UNLIMITED = 1 << 62


class Slack:
    """The slack of every choice of the scopes that demand slots, as one array: choices are numbers, a bit per scope."""

    def __init__(self, slots: Mapping[Scopes, int], demand: Mapping[int, int]) -> None:
        self.bits = {scope: 1 << number for number, scope in enumerate(sorted(demand))}
        self._choices = np.arange(1 << len(self.bits))
        self.left: Integers = np.zeros(len(self._choices), dtype=np.int64)
        for kind, count in slots.items():
            self.left += self._with(kind) * count
        for scope, count in demand.items():
            self.left -= self._with({scope}) * count

    def allowed(self, scope: int, kind: Scopes) -> int:
        """Return how many slots of nodes of a kind a scope may take of what it demands."""
        if len(self.bits) == 1:
            return UNLIMITED
        harmed = self._with(kind) & ~self._with({scope})
        return int(self.left[harmed].min(initial=UNLIMITED))

    def take(self, scope: int, kind: Scopes, count: int) -> None:
        """Give a scope slots that it demands."""
        if len(self.bits) > 1:
            self.left += count * (self._with({scope}).astype(np.int64) - self._with(kind))

    def reach(self) -> Integers:
        """Return how many slots more each choice of scopes could take: the least slack of the choices around it."""
        found = self.left.copy()
        for bit in self.bits.values():
            without = self._choices[self._choices & bit == 0]
            found[without] = np.minimum(found[without], found[without | bit])
        return found

    def _with(self, scopes: Scopes | set[int]) -> NDArray[np.bool_]:
        """Return which choices have at least one of these scopes."""
        bits = sum(self.bits.get(scope, 0) for scope in scopes)
        found: NDArray[np.bool_] = (self._choices & bits) != 0
        return found
