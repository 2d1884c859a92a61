"""The slots and free GPUs that domains offer to a run, and the groups that they hold (calculus.md, Assumptions).

Where each domain lies in one scope, whether a run fits is found by counting (`Offer`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.inventory import Integers, Inventory
from gkm.packing.values import MAX_GPUS, Request


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """The slots for pods of one size on an inventory's nodes, by node and by domain, in the order of the inventory.

    A slot is room for one pod. `node_slots` has one number per node. `slots` has a row per domain and a column per
    kind of node: nodes are of one kind if the same scopes take them. `kinds` names those scopes by their numbers, and
    `node_kinds` has the kind of each node, -1 where no scope takes it. A request without scopes has one kind of node
    and scope 0 takes it. `free` is in GPUs, by domain, on the nodes that the run can use.
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
        """Return the number of slots of each domain over all kinds of nodes."""
        total: Integers = self.slots.sum(axis=1)
        return total

    def restricted(self, domains: NDArray[np.bool_]) -> "Capacity":
        """Return the capacity without slots and free GPUs outside of the domains that are True in `domains`."""
        nodes = np.repeat(domains, np.diff(self.inventory.starts))
        return replace(
            self,
            node_slots=np.where(nodes, self.node_slots, 0),
            slots=np.where(domains[:, None], self.slots, 0),
            free=np.where(domains, self.free, 0),
        )

    def with_node_slots(self, node_slots: Integers) -> "Capacity":
        """Return the capacity with other numbers of slots, one for each node of the inventory."""
        slots = np.zeros_like(self.slots)
        usable = self.node_kinds >= 0
        np.add.at(slots, (self.inventory.domain_of[usable], self.node_kinds[usable]), node_slots[usable])
        return replace(self, node_slots=np.where(usable, node_slots, 0), slots=slots)

    def kind_of(self, node: str) -> int:
        """Return the number of the kind of a node, given the node's name."""
        return int(self.node_kinds[self.inventory.numbers[node]])

    def without_scopes(self) -> "Capacity":
        """Return the capacity without scopes: of nodes that are in at least one scope."""
        return replace(
            self,
            node_kinds=np.minimum(self.node_kinds, 0),
            kinds=(frozenset({0}),),
            slots=self.domain_slots[:, None],
        )


def capacity(inventory: Inventory, request: Request) -> Capacity:
    """Return the capacity of an inventory for a request, without domains that its rules exclude."""
    kinds, node_kinds = _kinds(inventory, request)
    usable, domains = node_kinds >= 0, len(inventory.places)
    free = np.zeros(domains, dtype=np.int64)
    np.add.at(free, inventory.domain_of[usable], inventory.free[usable])
    nothing = np.zeros((domains, max(1, len(kinds))), dtype=np.int64)
    empty = Capacity(inventory, request.pod_gpus, np.zeros_like(node_kinds), node_kinds, kinds, nothing, free)
    offer = empty.with_node_slots(inventory.free // request.pod_gpus)
    known = [inventory.areas(rule.level) >= 0 for rule in request.per_area]
    return offer if all(map(np.all, known)) else offer.restricted(np.logical_and.reduce(known))


def _kinds(inventory: Inventory, request: Request) -> tuple[tuple[frozenset[int], ...], Integers]:
    if not request.ceilings:
        return (frozenset({0}),), np.zeros(len(inventory.nodes), dtype=np.int64)
    numbers = {name: number for number, name in enumerate(request.scope_names)}
    of_names: dict[frozenset[str], frozenset[int]] = {}
    for node in inventory.nodes:
        if node.scopes not in of_names:
            of_names[node.scopes] = frozenset(numbers[scope] for scope in node.scopes if scope in numbers)
    kinds = tuple(sorted({kind for kind in of_names.values() if kind}, key=sorted))
    places = {names: kinds.index(kind) if kind else -1 for names, kind in of_names.items()}
    return kinds, np.array([places[node.scopes] for node in inventory.nodes], dtype=np.int64)


class Step(NamedTuple):
    """An amount of groups that a domain may take.

    Whole groups, the short last group or not, and how many have spares elsewhere.
    """

    groups: int
    overflow: int
    short: bool


def steps(slots: int, request: Request, most: int, *, overflow: bool, share: int = 0) -> list[Step]:
    """Return the possible steps of a domain, without and then with the short last group, each with more groups.

    Without `overflow` all spares stay. No more than `most` groups are wanted. With a `share` a domain takes so many
    groups or stays empty, the short group among them, and a step counts such shares: 1, or 0 beside the short group's
    share.
    """
    found: list[Step] = []
    for short in (False, True) if request.missing_pods else (False,):
        ways = _ways(slots, request, most, overflow=overflow, short=short)
        if share:
            fewest = next((away for groups, away in ways if groups >= share), None)
            found += [] if fewest is None else [Step(1 - short, fewest, short)]
        else:
            found += [Step(groups - short, away, short) for groups, away in ways]
    return found


def _ways(slots: int, request: Request, most: int, *, overflow: bool, short: bool) -> list[tuple[int, int]]:
    """Return (most groups, groups whose spares lie elsewhere), both rising; the short group may be among them."""
    offered = slots + (request.missing_pods if short else 0)
    highest = min(offered // (request.group_pods if overflow else request.unit_pods), most)
    found: list[tuple[int, int]] = []
    groups = min(offered // request.unit_pods, highest)
    if groups:
        found.append((groups, 0))
    while groups < highest:
        # The fewest that must lie elsewhere for one group more; what that makes space for may be several.
        away = -(-((groups + 1) * request.unit_pods - offered) // request.spares)
        groups = min((offered + away * request.spares) // request.unit_pods, highest)
        found.append((groups, away))
    return found


def scope_of_domains(capacity: Capacity) -> Integers | None:
    """Return the number of each domain's scope; None if a domain has nodes of several scopes."""
    if any(len(kind) > 1 for kind in capacity.kinds) or bool(((capacity.slots > 0).sum(axis=1) > 1).any()):
        return None
    if not capacity.kinds:
        return np.zeros(len(capacity.slots), dtype=np.int64)
    found: Integers = np.array([min(kind) for kind in capacity.kinds], dtype=np.int64)[capacity.slots.argmax(axis=1)]
    return found


@dataclass(frozen=True)
class Offer:
    """How many groups of a request each domain can take in one mode.

    All spares beside their groups, or some elsewhere (`overflow`). With a `share` a domain takes so many groups or
    stays empty, the short group among them; all counts are shares. `scope` has the scope of each domain.
    """

    capacity: Capacity
    request: Request
    scope: Integers
    overflow: bool
    share: int = 0

    @cached_property
    def slots(self) -> Integers:
        """Return the number of slots of each domain."""
        return self.capacity.domain_slots

    @cached_property
    def capacities(self) -> Integers:
        """Return the largest number of whole groups in each domain."""
        return self._capacities_of(self.slots)

    @cached_property
    def beside(self) -> Integers:
        """Return the most whole groups beside the short last group in each domain, -1 if that does not fit."""
        return self._capacities_of(self.slots + self.request.missing_pods) - 1

    def _capacities_of(self, slots: Integers) -> Integers:
        group = (self.request.group_pods if self.overflow else self.request.unit_pods) * max(self.share, 1)
        found: Integers = slots // group
        return np.minimum(found, 1) if self.share else found

    @property
    def short(self) -> int:
        """Return 1 if the last group is smaller than the others, else 0."""
        return int(self.request.missing_pods > 0)

    @property
    def groups(self) -> int:
        """Return the number of whole groups of the run, or of shares if there is a `share`."""
        return self.request.groups // max(self.share, 1) - self.short

    @cached_property
    def pods(self) -> list[int]:
        """Return how many pods of the run each scope can take, spares included."""
        given = self.request.scope_pods or [MAX_GPUS]
        if not self.overflow:
            return given
        offered = np.bincount(self.scope, weights=self.slots, minlength=len(given)).astype(np.int64).tolist()
        return [min(one, other) for one, other in zip(given, offered, strict=True)]

    def limit(self, scope: int) -> int:
        """Return the largest number of whole groups (or shares) in a scope."""
        return self.pods[scope] // (self.request.unit_pods * max(self.share, 1))

    def limit_beside(self, scope: int) -> int:
        """Return the most whole groups in a scope beside the short last group, -1 if that does not fit."""
        return (self.pods[scope] + self.request.missing_pods) // (self.request.unit_pods * max(self.share, 1)) - 1

    def fits(self) -> bool:
        """Return whether the run can fit in this mode, by comparing sums."""
        if self.share and self.request.groups % self.share:
            return False
        scopes = range(len(self.pods))
        capacity_of_scope = [int(self.capacities[self.scope == scope].sum()) for scope in scopes]
        whole = [min(capacity_of_scope[scope], self.limit(scope)) for scope in scopes]
        if not self.short:
            return sum(whole) >= self.groups
        for scope in scopes:
            here = (self.scope == scope) & (self.beside >= 0)
            if here.any() and self.limit_beside(scope) >= 0:
                beside = capacity_of_scope[scope] - int((self.capacities - self.beside)[here].min())
                if sum(whole) - whole[scope] + min(beside, self.limit_beside(scope)) >= self.groups:
                    return True
        return False
