"""Domains that each lie in one scope of a run: what each holds, and whether the run fits, by counting (calculus.md)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.steps import Shape, shape
from gkm.packing.inventory import Integers
from gkm.packing.values import MAX_GPUS, Request


def scope_of_domains(capacity: Capacity) -> Integers | None:
    """Return the scope of each domain; None where scopes overlap or cut through a domain."""
    if any(len(kind) > 1 for kind in capacity.kinds) or bool(((capacity.slots > 0).sum(axis=1) > 1).any()):
        return None
    if not capacity.kinds:
        return np.zeros(len(capacity.slots), dtype=np.int64)
    found: Integers = np.array([min(kind) for kind in capacity.kinds], dtype=np.int64)[capacity.slots.argmax(axis=1)]
    return found


@dataclass(frozen=True)
class Offer:
    """What domains offer to a run in one way: spares with their groups, or some elsewhere (`overflow`).

    With a `share` a domain takes so many groups or none, the short one among them, and all that is counted are shares.
    `scope` has the scope of each domain.
    """

    capacity: Capacity
    request: Request
    scope: Integers
    overflow: bool
    share: int = 0

    @cached_property
    def size(self) -> Shape:
        """Return the sizes of the run's groups."""
        return shape(self.request)

    @cached_property
    def slots(self) -> Integers:
        """Return the slots of each domain."""
        return self.capacity.domain_slots

    @cached_property
    def capacities(self) -> Integers:
        """Return the most whole groups of each domain."""
        return self._capacities_of(self.slots)

    @cached_property
    def beside(self) -> Integers:
        """Return the most whole groups of each domain beside the short one, -1 where that does not fit."""
        return self._capacities_of(self.slots + self.size.missing) - 1

    def _capacities_of(self, slots: Integers) -> Integers:
        group = (self.size.pods if self.overflow else self.size.unit) * max(self.share, 1)
        found: Integers = slots // group
        return np.minimum(found, 1) if self.share else found

    @property
    def short(self) -> int:
        """Return how many groups are short: 1 or 0."""
        return int(self.size.missing > 0)

    @property
    def groups(self) -> int:
        """Return how many whole groups there are."""
        return self.request.groups // max(self.share, 1) - self.short

    @cached_property
    def pods(self) -> list[int]:
        """Return how many pods each scope gives, spares included: no more than it has slots where spares need some."""
        given = [ceiling.gpus // self.request.pod_gpus for ceiling in self.request.ceilings] or [MAX_GPUS]
        if not self.overflow:
            return given
        offered = np.bincount(self.scope, weights=self.slots, minlength=len(given)).astype(np.int64).tolist()
        return [min(one, other) for one, other in zip(given, offered, strict=True)]

    def limit(self, scope: int) -> int:
        """Return the most whole groups of a scope."""
        return self.pods[scope] // (self.size.unit * max(self.share, 1))

    def limit_beside(self, scope: int) -> int:
        """Return the most whole groups of a scope beside the short one, -1 where that alone is too much."""
        return (self.pods[scope] + self.size.missing) // (self.size.unit * max(self.share, 1)) - 1

    def fits(self) -> bool:
        """Return whether the run fits so. The short group is where that costs the fewest whole ones."""
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
