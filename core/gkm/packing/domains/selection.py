"""Choose the domains of a run, and their groups, with tables, if each domain is in one scope (calculus.md, Method).

A plan that is the best without ceilings, and within them, is the best. Only what plans close to the bound can have is
put into tables; where these show that the bound is not reached, they are made again for the cost that they found.

The costs of a plan are one integer: each part has a field of bits wide enough for its largest sum, so fields never run
into each other, and two sums compare at the first field in which they differ. A region, a cluster or a block is paid
once for all that is in it (`knapsack`); the rest is part of an option of a domain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity, Offer
from gkm.packing.domains.fixing import Fixed, fixing
from gkm.packing.domains.knapsack import (
    AreaLevel,
    Cell,
    DomainOption,
    Part,
    Problem,
    Symmetry,
    Tables,
    read,
    solve,
    tree,
)
from gkm.packing.values import ORDERS, Policy, Request

WHOLE = -1


class Costs(NamedTuple):
    """A number for each part of a plan's cost: the largest value of the part, or its weight."""

    spares: int
    domains: int
    gpus: int
    blocks: int
    clusters: int
    regions: int


class Objective(NamedTuple):
    """The weight of each part of a plan's cost, so that weighted sums compare as the policy does.

    Where `impossible` takes more than 62 bits, sums are Python's integers: exact at any size, and slow (knapsack.py).
    """

    weights: Costs
    first: int
    impossible: int


def objective(policy: Policy, limits: Costs) -> Objective:
    """Return weights for a policy, valid as long as no part of a cost exceeds its limit."""
    weights: dict[str, int] = {}
    shift = 0
    for part in reversed(ORDERS[policy]):
        weights[part.value] = 1 << shift
        shift += int(getattr(limits, part)).bit_length()
    return Objective(Costs(**weights), weights[ORDERS[policy][1]], 1 << shift)


class Chosen(NamedTuple):
    """The groups that one domain takes, by scope, and the scope of the short last group, if it is there.

    `domain` is its number in the inventory. Without scopes there is one, with number 0. `away` are the groups of each
    scope whose spares may lie elsewhere; empty if that follows from the slots.
    """

    domain: int
    groups: tuple[int, ...]
    short: int
    away: tuple[int, ...] = ()


class Choice(NamedTuple):
    """The groups that all used domains take, and their cost."""

    chosen: list[Chosen]
    cost: int


def objective_of(capacity: Capacity, request: Request) -> Objective:
    """Return an objective with weights that are large enough for any plan of the request."""
    groups, inventory = request.groups, capacity.inventory
    usable = np.flatnonzero(capacity.domain_slots)
    areas = [len(np.unique(numbers[usable])) for numbers in (inventory.blocks, inventory.clusters, inventory.regions)]
    limits = Costs(
        groups if request.spares else 0,
        min(groups, len(usable)),
        int(capacity.free.sum()),
        *[min(groups, count) for count in areas],
    )
    return objective(request.policy, limits)


def choose(offer: Offer, costs: Objective, most: int | None = None) -> Choice | None:
    """Return the choice of domains with the smallest cost; None if the run does not fit, or costs more than `most`.

    Raises:
        TooLargeError: the run has too many groups, or could use too many domains, to be solved exactly.
    """
    # 1. By counting, the run fits; ceilings are left aside.
    # 2. Prices bound the cost, and fix which steps a plan close to the bound can have (`fixing`).
    # 3. Tables hold the least cost of these steps, and the plan of the smallest keys is read back (`knapsack`).
    # 4. A ceiling that this plan exceeds becomes an axis, and 2 and 3 are done again.
    if not offer.fits():
        return None
    binding: list[int] = []
    while True:
        found = _Search(offer, costs, binding).best(most)
        if found is None:
            return None
        taken = _pods(offer, found.chosen)
        over = [scope for scope, limit in enumerate(offer.pods) if taken[scope] > limit and scope not in binding]
        if not over:
            return found
        binding = sorted([*binding, *over])


def _pods(offer: Offer, chosen: Sequence[Chosen]) -> list[int]:
    """Return the pods of each scope, spares included."""
    found = [0] * len(offer.pods)
    for item in chosen:
        for scope, count in enumerate(item.groups):
            found[scope] += count * offer.request.unit_pods
        if item.short != WHOLE:
            found[item.short] -= offer.request.missing_pods
    return found


class _Search:
    """The tables of a run, in which some scopes have their own axes."""

    def __init__(self, offer: Offer, costs: Objective, binding: Sequence[int]) -> None:
        self.offer, self.costs = offer, costs
        self.domains = np.flatnonzero((offer.capacities > 0) | ((offer.beside >= 0) & (offer.short > 0)))
        axes = np.full(len(offer.pods), len(binding), dtype=np.int64)
        axes[list(binding)] = np.arange(len(binding))
        self.axis = axes[offer.scope[self.domains]]
        rest = [None] if len(binding) < len(offer.pods) else []
        self.limits: list[int | None] = [*(offer.limit(scope) for scope in binding), *rest]
        self.beside: list[int | None] = [*(offer.limit_beside(scope) for scope in binding), *rest]

    def best(self, highest: int | None) -> Choice | None:
        """Return the best choice; None if every choice costs more than `highest`."""
        steps = fixing(self.offer, self.domains, self.axis, self.limits)
        priced, unit = steps.priced, self.costs.weights.spares if self.offer.overflow else self.costs.first
        if priced is None:
            return self._solved(steps.all(), None)
        most = priced.fewest
        while highest is None or most * unit <= highest:
            some = steps.within(priced, most)
            found = self._solved(some, most * unit + unit - 1)
            if found is not None and found.cost // unit <= most:
                return found
            if found is None and not some.least.any() and [*map(len, some.steps)] == [*map(len, steps.all().steps)]:
                return None
            most = most + max(1, most - priced.fewest) if found is None else found.cost // unit
        return None

    def _solved(self, some: Fixed, expected: int | None) -> Choice | None:
        """Return the best choice of some steps; only its cost where that is above what is expected."""
        least = some.least.tolist()
        always = np.bincount(self.axis, weights=some.least, minlength=len(self.limits)).astype(np.int64).tolist()
        extra = self.offer.groups - sum(always)
        sizes = self._sizes(always, extra)
        if extra < 0 or min(sizes) < 0:
            return None
        tables = solve(self._problem(some, extra, sizes))
        starts = self._starts(tables, always, extra)
        if not starts:
            return None
        cost = tables.least(starts[0])
        if expected is not None and cost > expected:
            return Choice([], cost)
        taken = read(tables, starts)
        return Choice(
            [self._chosen(step.domain, step.groups + least[step.domain], short=step.short) for step in taken], cost
        )

    def _problem(self, some: Fixed, extra: int, sizes: Cell) -> Problem:
        """Return what is to be placed beyond what domains have in any case."""
        weights, free = self.costs.weights, self.offer.capacity.free[self.domains].tolist()
        kinds = [
            (id(steps), least, gpus, axis)
            for steps, least, gpus, axis in zip(some.steps, some.least.tolist(), free, self.axis.tolist(), strict=True)
        ]
        known: dict[tuple[int, int, int, int], list[DomainOption]] = {}
        for kind, steps in zip(kinds, some.steps, strict=True):
            if kind not in known:
                _, least, gpus, axis = kind
                base = weights.domains + gpus * weights.gpus
                known[kind] = [
                    DomainOption(step.groups - least, base + step.overflow * weights.spares, axis, step.short)
                    for step in steps
                    if step.groups >= least
                ]
        options = [known[kind] for kind in kinds]
        here = [number for number, offered in enumerate(options) if offered]
        forced = frozenset(number for number in here if some.least[number])
        parts = self._tree(here, Symmetry(kinds, self._most(options, extra), extra + 1, forced))
        return Problem(options, parts, sizes, self.costs.impossible, self.offer.short > 0, forced)

    def _most(self, options: Sequence[Sequence[DomainOption]], extra: int) -> list[int]:
        """Return how many of its kind in one block any plan of least cost uses."""
        if self.offer.overflow:
            return [extra + 1] * len(options)
        largest = [max((option.groups for option in offered), default=1) for offered in options]
        return [-(-extra // max(1, groups)) + 1 for groups in largest]

    def _tree(self, here: Sequence[int], alike: Symmetry) -> tuple[Part, ...]:
        inventory, weights = self.offer.capacity.inventory, self.costs.weights
        numbers = inventory.regions, inventory.clusters, inventory.blocks
        costs = weights.regions, weights.clusters, weights.blocks
        levels = [AreaLevel(each[self.domains].tolist(), cost) for each, cost in zip(numbers, costs, strict=True)]
        return tree(here, levels, alike).parts

    def _sizes(self, always: Sequence[int], extra: int) -> Cell:
        found = []
        for limit, beside, have in zip(self.limits, self.beside, always, strict=True):
            most = extra if limit is None or beside is None else max(limit, beside) - have
            found.append(min(extra, most))
        return tuple(found)

    def _starts(self, tables: Tables, always: Sequence[int], extra: int) -> list[Cell]:
        """Return the cells that place all groups within the ceilings at the least cost."""
        shape = tables.problem.shape
        counts = np.indices(shape[1:])
        best, found = tables.problem.impossible - 1, list[Cell]()
        for row in range(1, shape[0]) if tables.problem.short else (0,):
            allowed = counts.sum(axis=0) == extra
            for axis, (limit, beside) in enumerate(zip(self.limits, self.beside, strict=True)):
                most = beside if axis == row - 1 else limit
                if most is not None:
                    allowed &= counts[axis] + always[axis] <= most
            for cell in np.argwhere(allowed & (tables.total[row] <= best)).tolist():
                cost = tables.least((row, *cell))
                if cost < best:
                    best, found = cost, []
                if cost == best:
                    found.append((row, *cell))
        return found

    def _chosen(self, number: int, groups: int, *, short: bool) -> Chosen:
        domain = int(self.domains[number])
        scope = int(self.offer.scope[domain])
        taken = [0] * len(self.offer.pods)
        taken[scope] = (groups + short) * max(1, self.offer.share)
        return Chosen(domain, tuple(taken), scope if short else WHOLE)
