"""Which domains a run uses and what each takes, where several scopes with ceilings pay for it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.axes import Axes, axes_of
from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen, costs_of, runs, useful
from gkm.packing.domains.choosing_overlapping import choose_overlapping
from gkm.packing.domains.costs import Costs
from gkm.packing.domains.cover import Cell, Tables, TooLargeError, cover
from gkm.packing.domains.mixtures import mixtures
from gkm.packing.domains.narrowing import Narrowed
from gkm.packing.domains.narrowing_scopes import worth_of_scopes
from gkm.packing.domains.options import WHOLE, Option, shape
from gkm.packing.domains.reading import read
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy, Request

MAX_SCOPES = 8


def choose_of_scopes(capacity: Capacity, request: Request) -> list[Chosen] | None:
    """Return what each used domain takes at least cost, in order of places; None if the run does not fit.

    Raises:
        TooLargeError: there are too many groups, scopes or mixtures to be solved exactly.
    """
    if len(request.ceilings) > MAX_SCOPES:
        raise TooLargeError(f"{len(request.ceilings)} scopes are more than the {MAX_SCOPES} that are planned exactly")
    slots = capacity.domain_slots
    size = shape(request)
    if request.may_spread:
        domains = useful(slots, size, leave=False)
        found = _chosen(capacity, request, domains.tolist(), leave=False)
        if found is not None or not request.spares:
            return found
        if any(len(kind) > 1 for kind in capacity.kinds):
            return choose_overlapping(capacity, request)
        return _chosen(capacity, request, useful(slots, size, leave=True).tolist(), leave=True)
    needed = request.groups * (size.pods + size.spares) - size.missing
    fitting = np.flatnonzero(slots >= needed)
    for domain in fitting[np.argsort(capacity.free[fitting], kind="stable")].tolist():
        found = _chosen(capacity, request, [domain], leave=False)
        if found is not None:
            return found
    return None


def _chosen(capacity: Capacity, request: Request, domains: list[int], *, leave: bool) -> list[Chosen] | None:
    size = shape(request)
    # More groups than there are slots cannot be, and would make tables that nothing fills.
    if not domains or request.groups * size.pods - size.missing > int(capacity.domain_slots.sum()):
        return None
    here = np.array(domains, dtype=np.int64)
    weights = costs_of(capacity, request, here)
    priced = worth_of_scopes(capacity, request, here) if request.may_spread and not leave else None
    if priced is None:
        everything = Narrowed(np.arange(len(here)), np.zeros(len(here), dtype=np.int64))
        placed = _placed(capacity, request, here, everything, weights, leave=leave)
        return None if placed is None else placed.read()
    # As in `choosing_staying`: what a plan can use that is as good as the bound, or as one that was found.
    first = {Policy.FEWEST_BLOCKS: weights.block, Policy.LEAST_WASTE: weights.gpu}.get(request.policy, weights.domain)
    most = priced.fewest
    while True:
        narrowed = priced.narrowed(most)
        placed = _placed(capacity, request, here, narrowed, weights, leave=False)
        if placed is not None and placed.cost // first <= most:
            return placed.read()
        if placed is None and len(narrowed.domains) == len(here) and not narrowed.least.any():
            return None
        most = most + max(1, most - priced.fewest) if placed is None else placed.cost // first


class _Placed(NamedTuple):
    """Tables of what domains take beyond what they have in any case, and the cells of all groups at the least cost."""

    axes: Axes
    domains: Sequence[int]
    whole: Sequence[list[Option]]
    least: Sequence[Cell]
    tables: Tables
    starts: Sequence[Cell]

    @property
    def cost(self) -> int:
        """Return the least cost."""
        return self.tables.least(self.starts[0])

    def read(self) -> list[Chosen]:
        """Return what each domain takes."""
        return [
            _by_scope(self.axes, self.whole[number], _sum(taken, self.least[number]), short, self.domains[number])
            for number, taken, short, _ in read(self.tables, self.starts)
        ]


def _placed(
    capacity: Capacity, request: Request, here: Integers, narrowed: Narrowed, weights: Costs, *, leave: bool
) -> _Placed | None:
    """Return the tables of a run in some of the domains `here`; None if it does not fit so."""
    size = shape(request)
    short = size.missing > 0
    axes = axes_of(capacity, request, leave=leave)
    scopes = len(request.ceilings)
    domains = here[narrowed.domains].tolist()
    known: dict[tuple[int, ...], list[Option]] = {}
    whole: list[list[Option]] = []
    least: list[Cell] = []
    for domain, count in zip(domains, narrowed.least.tolist(), strict=True):
        row = (*capacity.slots[domain].tolist(), int(capacity.free[domain]))
        if row not in known:
            offered = dict(zip(capacity.kinds, row, strict=False))
            known[row] = mixtures(offered, row[-1], size, weights, scopes, leave=leave, most=request.groups)
        whole.append(known[row])
        # Only where a domain is in one scope does it have any groups in any case.
        at = axes.project(known[row][0].groups) if count else (0,) * len(axes.most)
        least.append(tuple([count if groups else 0 for groups in at]))
    always = tuple([sum(counts) for counts in zip(*least, strict=True)]) or (0,) * len(axes.most)
    if any(have > most for have, most in zip(always, axes.most_short, strict=True)):
        return None
    sizes = tuple([most - have for have, most in zip(always, axes.most_short, strict=True)])
    blocks = runs(capacity.inventory.blocks[here[narrowed.domains]])
    forced = frozenset(number for number, counts in enumerate(least) if any(counts))
    projected = [
        [_projected(axes, option, counts) for option in offered] for offered, counts in zip(whole, least, strict=True)
    ]
    tables = cover(projected, blocks, weights, sizes, short=short, forced=forced)
    starts = _starts(tables, axes, always, request.groups, short=short)
    return _Placed(axes, domains, whole, least, tables, starts) if starts else None


def _sum(one: Cell, other: Cell) -> Cell:
    return tuple([left + right for left, right in zip(one, other, strict=True)])


def _projected(axes: Axes, option: Option, less: Cell) -> Option:
    groups = tuple([have - always for have, always in zip(axes.project(option.groups), less, strict=True)])
    return Option(groups, WHOLE if option.short == WHOLE else axes.of_scope[option.short], option.cost)


def _starts(tables: Tables, axes: Axes, always: Cell, groups: int, *, short: bool) -> list[Cell]:
    """Return the cells that place all groups within the ceilings at the least cost. `always` are beside each cell."""
    totals = np.indices(tables.unused.shape[2:]).sum(axis=0) + sum(always)
    best = tables.costs.impossible
    found: list[Cell] = []
    for row in range(1, len(axes.most) + 1) if short else (0,):
        table = tables.unused[0, row]
        allowed = totals == groups
        for axis, most in enumerate(axes.most):
            here = axes.most_short[axis] if axis == row - 1 else most
            index = np.arange(table.shape[axis]) + always[axis]
            allowed &= ((index <= here) & ((index > 0) | (axis != row - 1))).reshape(
                [-1 if other == axis else 1 for other in range(table.ndim)]
            )
        for cell in np.argwhere(allowed & (table <= best)).tolist():
            cost = int(table[tuple(cell)])
            if cost < best:
                best, found = cost, []
            if cost == best < tables.costs.impossible:
                found.append((row, *cell))
    return found


def _by_scope(axes: Axes, offered: list[Option], taken: Cell, short: int, domain: int) -> Chosen:
    """Return what was taken by scope: an option that has room for it, less what it has too much of."""
    fitting = []
    for option in offered:
        room = axes.project(option.groups)
        at = WHOLE if option.short == WHOLE else axes.of_scope[option.short]
        if at == short and all(have >= want for have, want in zip(room, taken, strict=True)):
            fitting.append(option)
    best = min(fitting, key=lambda option: (option.cost, tuple(-count for count in option.groups)))
    groups = list(best.groups)
    spare = [have - want for have, want in zip(axes.project(groups), taken, strict=True)]
    for scope in reversed(range(len(groups))):
        axis = axes.of_scope[scope]
        less = min(spare[axis], groups[scope] - (scope == best.short))
        groups[scope] -= less
        spare[axis] -= less
    return Chosen(domain, tuple(groups), best.short)
