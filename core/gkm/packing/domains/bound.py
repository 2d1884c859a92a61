"""What no plan is better than, by an argument that shares nothing with the tables of `cover` (calculus.md, Proof)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.domains.bound_leaving import least_within
from gkm.packing.domains.bound_scopes import least_of_scopes
from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.options import shape
from gkm.packing.domains.pricing import prices
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy, Request

Booleans = NDArray[np.bool_]


class _Room(NamedTuple):
    """What domains, or blocks, hold at most: whole groups, and one more where the short one fits beside these.

    `forced` are used by every plan, `free` is what of GPUs is free in each.
    """

    whole: Integers
    extra: Integers
    forced: Booleans
    free: Integers


def lower_bound(capacity: Capacity, request: Request, *, leaving: int, taken: int, reached: int | None = None) -> int:
    """Return the fewest domains, blocks or stranded GPUs that any plan has: what the policy compares first.

    What a plan has `reached` saves to look further where a simple argument proves it.

    The run must fit. Compared are plans in which no more groups have spares that leave than `leaving`. Of the GPUs
    that are free in used domains `taken` are not stranded. Where scopes overlap or cut through domains, or where spares
    leave, ceilings are not looked at: where they bind, the bound may be below what is possible.
    """
    if not request.may_spread:
        needed = request.groups * (request.group_pods + request.spares) - request.group_pods + request.last_pods
        fitting = capacity.domain_slots >= needed
        return int(capacity.free[fitting].min()) - taken if request.policy is Policy.LEAST_WASTE else 1
    if len(request.ceilings) > 1 and not leaving:
        return max(least_of_scopes(capacity, request, taken), _of_one(capacity, request, leaving, taken, reached))
    return _of_one(capacity, request, leaving, taken, reached)


def _of_one(capacity: Capacity, request: Request, leaving: int, taken: int, reached: int | None) -> int:
    room = _leaving(capacity, request, leaving) if leaving else _staying(capacity, request)
    if request.policy is Policy.FEWEST_BLOCKS:
        return _fewest(_by_block(room, capacity.inventory.blocks), request.groups)
    waste = request.policy is Policy.LEAST_WASTE
    found = max(0, _least_free(room, request.groups) - taken) if waste else _fewest(room, request.groups)
    if not leaving or reached is None or found >= reached:
        return found
    slots = capacity.domain_slots.tolist()
    cost = capacity.free.tolist() if waste else [1] * len(slots)
    least = least_within(prices(slots, shape(request), request.groups), slots, cost, request.groups, leaving)
    return found if least is None else max(found, least - taken if waste else least)


def _staying(capacity: Capacity, request: Request) -> _Room:
    size = shape(request)
    unit = size.pods + size.spares
    slots = capacity.domain_slots
    whole = slots // unit
    return _Room(whole, (slots + size.missing) // unit - whole, np.zeros(len(slots), dtype=np.bool_), capacity.free)


def _leaving(capacity: Capacity, request: Request, leaving: int) -> _Room:
    slots = capacity.domain_slots.tolist()
    kinds = sorted(set(slots))
    allowed = prices(slots, shape(request), request.groups).allowed(leaving)
    whole = [max((step.most for step in allowed[kind] if not step.short), default=0) for kind in kinds]
    either = [max((step.most for step in allowed[kind]), default=0) for kind in kinds]
    forced = [all(step.fewest for step in allowed[kind]) for kind in kinds]
    of = np.searchsorted(np.array(kinds), capacity.domain_slots)
    held = np.array(whole, dtype=np.int64)
    # With the short group a domain holds one more than without, at most.
    extra = np.minimum(np.array(either, dtype=np.int64) - held, 1).clip(min=0)
    return _Room(held[of], extra[of], np.array(forced, dtype=np.bool_)[of], capacity.free)


def _by_block(room: _Room, blocks: Integers) -> _Room:
    def summed(values: Integers) -> Integers:
        found: Integers = np.bincount(blocks, weights=values).astype(np.int64)
        return found

    return _Room(
        summed(room.whole),
        summed(room.extra).clip(max=1),
        np.bincount(blocks, weights=room.forced) > 0,
        summed(room.free),
    )


def _rest(room: _Room, groups: int) -> tuple[_Room, int]:
    """Return what need not be used, and how many groups the others do not hold."""
    groups -= int(room.whole[room.forced].sum())
    optional = ~room.forced
    extra = room.extra[optional]
    if room.extra[room.forced].any():
        groups, extra = groups - 1, np.zeros_like(extra)
    return _Room(room.whole[optional], extra, room.forced[optional], room.free[optional]), groups


def _fewest(room: _Room, groups: int) -> int:
    """Return the fewest whose largest capacities reach the groups, the short one in one that has room for it."""
    rest, groups = _rest(room, groups)
    forced = int(room.forced.sum())
    if groups <= 0:
        return forced
    order = np.lexsort((-rest.extra, -rest.whole))
    whole, extra = rest.whole[order], rest.extra[order]
    reach = np.concatenate(([0], np.cumsum(whole)))
    best = reach[1:].copy()
    if extra.any():
        # m of them reach one more with the first that has room among them, or in place of the last of them.
        first = int(np.argmax(extra))
        best[first:] += 1
        best[:first] = np.maximum(best[:first], reach[:first] + whole[first] + 1)
    return forced + int(np.searchsorted(best, groups)) + 1


def _least_free(room: _Room, groups: int) -> int:
    """Return the fewest GPUs that are free in used domains: a knapsack over domains alone, fewest free first."""
    rest, needed = _rest(room, groups)
    forced = int(room.free[room.forced].sum())
    if needed <= 0:
        return forced
    short = bool(rest.extra.any())
    least = np.full((1 + short, needed + 1), 1 << 62, dtype=np.int64)
    least[0, 0] = 0
    # The second row is that with the short group beside whole ones.
    for index in _candidates(rest, needed):
        free, whole = int(rest.free[index]), min(int(rest.whole[index]), needed)
        more = _raised(least[0], whole + 1, free) if short and rest.extra[index] else None
        if whole:
            np.minimum(least, _raised(least, whole, free), out=least)
        if more is not None:
            np.minimum(least[1], more, out=least[1])
    return forced + int(least[:, needed].min())


def _raised(least: Integers, groups: int, free: int) -> Integers:
    """Return costs with a domain more, which holds so many groups."""
    groups = min(groups, least.shape[-1] - 1)
    found = np.empty_like(least)
    np.add(least[..., : least.shape[-1] - groups], free, out=found[..., groups:])
    np.add(least[..., :1], free, out=found[..., :groups])
    return found


def _candidates(room: _Room, needed: int) -> list[int]:
    """Return domains: of those that hold equally many, those with the fewest free GPUs, as many as could be needed."""
    left: dict[tuple[int, int], int] = {}
    found = []
    wholes, extras = room.whole.tolist(), room.extra.tolist()
    for index in np.lexsort((room.free, room.whole)).tolist():
        kind = wholes[index], extras[index]
        if sum(kind):
            used = left.setdefault(kind, -(-needed // max(1, kind[0])) + 1)
            left[kind] = used - 1
            if used > 0:
                found.append(index)
    return found
