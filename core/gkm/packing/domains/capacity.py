"""What every domain offers to a run: slots and free GPUs (docs/design/calculus.md, Assumptions)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gkm.packing.inventory import Integers, Inventory
from gkm.packing.values import Request


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """What an inventory offers to pods of one size, by node and by domain, in the order of the inventory.

    A slot is room for one pod. `node_slots` has one number per node. `slots` has a row per domain and a column per
    kind of node: nodes are of one kind if the same scopes take them. `kinds` names those scopes by their numbers, and
    `node_kinds` has the kind of each node, -1 where no scope takes it. A request without scopes has one kind of node
    and scope 0 takes it. `free` is in GPUs, by domain: those of nodes that the run can use.
    """

    inventory: Inventory
    pod_gpus: int
    node_slots: Integers
    node_kinds: Integers
    kinds: tuple[frozenset[int], ...]
    slots: Integers
    free: Integers

    @property
    def domain_slots(self) -> Integers:
        """Return the slots of each domain, whatever scope they are in."""
        total: Integers = self.slots.sum(axis=1)
        return total

    def restricted(self, domains: NDArray[np.bool_]) -> "Capacity":
        """Return what only these domains offer."""
        nodes = np.repeat(domains, np.diff(self.inventory.starts))
        return replace(
            self,
            node_slots=np.where(nodes, self.node_slots, 0),
            slots=np.where(domains[:, None], self.slots, 0),
            free=np.where(domains, self.free, 0),
        )

    def without_scopes(self) -> "Capacity":
        """Return what nodes offer that any scope takes, as if these were one."""
        return replace(
            self,
            node_kinds=np.minimum(self.node_kinds, 0),
            kinds=(frozenset({0}),),
            slots=self.domain_slots[:, None],
        )


def capacity(inventory: Inventory, request: Request) -> Capacity:
    """Return what the inventory offers to a request."""
    kinds, node_kinds = _kinds(inventory, request)
    usable = node_kinds >= 0
    slots = np.where(usable, inventory.free // request.pod_gpus, 0)
    domains, domain_of = len(inventory.places), inventory.domain_of
    table = np.zeros((domains, max(1, len(kinds))), dtype=np.int64)
    np.add.at(table, (domain_of[usable], node_kinds[usable]), slots[usable])
    free = np.zeros(domains, dtype=np.int64)
    np.add.at(free, domain_of[usable], inventory.free[usable])
    return Capacity(inventory, request.pod_gpus, slots, node_kinds, kinds, table, free)


def _kinds(inventory: Inventory, request: Request) -> tuple[tuple[frozenset[int], ...], Integers]:
    if not request.ceilings:
        return (frozenset({0}),), np.zeros(len(inventory.nodes), dtype=np.int64)
    numbers = {ceiling.scope: number for number, ceiling in enumerate(request.ceilings)}
    of_names: dict[frozenset[str], frozenset[int]] = {}
    for node in inventory.nodes:
        if node.scopes not in of_names:
            of_names[node.scopes] = frozenset(numbers[scope] for scope in node.scopes if scope in numbers)
    kinds = tuple(sorted({kind for kind in of_names.values() if kind}, key=sorted))
    places = {names: kinds.index(kind) if kind else -1 for names, kind in of_names.items()}
    return kinds, np.array([places[node.scopes] for node in inventory.nodes], dtype=np.int64)
