"""Inputs and results of choosing nodes in a domain, and the spare slots (slack) of scopes that share nodes.

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
"""The number of spares on a node of their own group, and of pairs of a group and a node that it uses."""


class NodeSlots(NamedTuple):
    """A node with free slots. `rest` are free GPUs that are too few for another slot; `scopes` may use the node."""

    name: str
    slots: int
    rest: int
    scopes: frozenset[int] = ANY_SCOPE


class GroupDemand(NamedTuple):
    """The pods of a group to place in a domain, and its spares there. Spares of other domains' groups have no pods."""

    pods: int
    spares: int
    scope: int = 0


class NodeChoice(NamedTuple):
    """The chosen nodes of a group, as bits of a number, and how many of its spares share them."""

    nodes: int
    beside: int


class GroupNodes(NamedTuple):
    """The chosen nodes of a group: its pods by node, and the node of each spare."""

    pods: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]


class Numbered(NamedTuple):
    """A choice of nodes by number: for each group its pods by node, and the nodes of its spares."""

    pods: list[dict[int, int]]
    spares: list[list[int]]

    @property
    def costs(self) -> Costs:
        """Return the costs of the layout: spares on nodes of their own group, and pairs of a group and a node."""
        both = zip(self.pods, self.spares, strict=True)
        return sum(at in own for own, nodes in both for at in nodes), sum(map(len, self.pods))


def free_nodes(capacity: Capacity, domain: int, scopes: frozenset[int]) -> list[NodeSlots]:
    """Return the nodes of a domain with free slots, with the scopes among `scopes` that may use each."""
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
    """Return the total slots of the nodes whose bits are set in `some`."""
    return sum(node.slots for at, node in enumerate(nodes) if some >> at & 1)


Scopes = frozenset[int]
UNLIMITED = 1 << 62


class Slack:
    """The spare slots of every combination of scopes; a combination is a number with one bit for each scope."""

    def __init__(self, slots: Mapping[Scopes, int], demand: Mapping[int, int]) -> None:
        self.bits = {scope: 1 << number for number, scope in enumerate(sorted(demand))}
        self._choices = np.arange(1 << len(self.bits))
        self.left: Integers = np.zeros(len(self._choices), dtype=np.int64)
        for kind, count in slots.items():
            self.left += self._with(kind) * count
        for scope, count in demand.items():
            self.left -= self._with({scope}) * count

    def allowed(self, scope: int, kind: Scopes) -> int:
        """Return how many slots of a kind of nodes a scope may use."""
        if len(self.bits) == 1:
            return UNLIMITED
        harmed = self._with(kind) & ~self._with({scope})
        return int(self.left[harmed].min(initial=UNLIMITED))

    def take(self, scope: int, kind: Scopes, count: int) -> None:
        """Record that a scope uses `count` slots of a kind of nodes."""
        if len(self.bits) > 1:
            self.left += count * (self._with({scope}).astype(np.int64) - self._with(kind))

    def reach(self) -> Integers:
        """Return how many more slots each combination of scopes can use."""
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
