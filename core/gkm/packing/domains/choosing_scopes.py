"""Which domains a run uses and what each takes, where several scopes with ceilings pay for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen, costs_of, runs, useful
from gkm.packing.domains.choosing_overlapping import choose_overlapping
from gkm.packing.domains.cover import Cell, Tables, TooLargeError, cover
from gkm.packing.domains.mixtures import mixtures
from gkm.packing.domains.options import WHOLE, Option, shape
from gkm.packing.domains.reading import read
from gkm.packing.values import Request

MAX_SCOPES = 8


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of the table: one per scope whose ceiling can bind, one for all the others together.

    `of_scope` has the axis of each scope; `most` the most groups of each axis, `most_short` the same where the short
    last group is one of them.
    """

    of_scope: tuple[int, ...]
    most: Cell
    most_short: Cell

    def project(self, groups: Sequence[int]) -> Cell:
        """Return groups by axis of groups by scope."""
        found = [0] * len(self.most)
        for axis, count in zip(self.of_scope, groups, strict=True):
            found[axis] += count
        return tuple(found)


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
    axes = _axes(capacity, request, leave=leave)
    weights = costs_of(capacity, request, np.array(domains, dtype=np.int64))
    scopes = len(request.ceilings)
    whole: list[list[Option]] = []
    known: dict[tuple[int, ...], list[Option]] = {}
    for domain in domains:
        row = (*capacity.slots[domain].tolist(), int(capacity.free[domain]))
        if row not in known:
            offered = dict(zip(capacity.kinds, row, strict=False))
            known[row] = mixtures(offered, row[-1], size, weights, scopes, leave=leave, most=request.groups)
        whole.append(known[row])
    projected = [[_projected(axes, option) for option in offered] for offered in whole]
    tables = cover(
        projected, runs(capacity.inventory.blocks[domains]), weights, axes.most_short, short=size.missing > 0
    )
    starts = _starts(tables, axes, request.groups, short=size.missing > 0)
    if not starts:
        return None
    return [
        _by_scope(axes, whole[number], taken, short, domains[number])
        for number, taken, short, _ in read(tables, starts)
    ]


def _projected(axes: _Axes, option: Option) -> Option:
    return Option(
        axes.project(option.groups), WHOLE if option.short == WHOLE else axes.of_scope[option.short], option.cost
    )


def _axes(capacity: Capacity, request: Request, *, leave: bool) -> _Axes:
    size = shape(request)
    unit = size.pods + size.spares
    wanted = request.groups * unit - size.missing
    axes: list[int] = []
    limits: list[int] = []
    rest = -1
    for scope, ceiling in enumerate(request.ceilings):
        offered = int(capacity.scope_slots(frozenset({scope})).sum())
        given = ceiling.gpus // request.pod_gpus
        # Where spares leave, their scope must have slots for them, wherever these are: as good as a ceiling.
        if given >= min(offered, wanted) and not leave:
            if rest < 0:
                rest = len(limits)
                limits.append(wanted)
            axes.append(rest)
        else:
            axes.append(len(limits))
            limits.append(min(given, offered, wanted))
    most = tuple(limit // unit for limit in limits)
    most_short = tuple(min(request.groups, (limit + size.missing) // unit) for limit in limits)
    return _Axes(tuple(axes), most, most_short)


def _starts(tables: Tables, axes: _Axes, groups: int, *, short: bool) -> list[Cell]:
    """Return the cells that place all groups within the ceilings at the least cost."""
    totals = np.indices(tables.unused.shape[2:]).sum(axis=0)
    best = tables.costs.impossible
    found: list[Cell] = []
    for row in range(1, len(axes.most) + 1) if short else (0,):
        table = tables.unused[0, row]
        allowed = totals == groups
        for axis, most in enumerate(axes.most):
            here = axes.most_short[axis] if axis == row - 1 else most
            index = np.arange(table.shape[axis])
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


def _by_scope(axes: _Axes, offered: list[Option], taken: Cell, short: int, domain: int) -> Chosen:
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
