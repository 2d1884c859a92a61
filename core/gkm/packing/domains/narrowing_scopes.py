"""Which domains a plan can use, as in `narrowing`, where each domain is in one of several scopes with ceilings.

In a scope whose ceiling binds a group is worth less than elsewhere: there are enough that would be as good. So every
scope has a price, the highest where no ceiling binds. What a ceiling leaves unused costs the difference of the prices.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.narrowing import MOST, Worth, areas
from gkm.packing.domains.options import shape
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy, Request

MAX_DENOMINATOR = 1 << 20


def worth_of_scopes(capacity: Capacity, request: Request, domains: Integers) -> Worth | None:
    """Return prices for a run in some domains, all of whose spares stay; None where there are none.

    There are none where scopes overlap, and where nodes of one domain are in different scopes.
    """
    size = shape(request)
    unit = size.pods + size.spares
    slots = capacity.slots[domains]
    if any(len(kind) > 1 for kind in capacity.kinds) or int((slots > 0).sum(axis=1).max(initial=0)) > 1:
        return None
    held, kind = slots.sum(axis=1) // unit, slots.argmax(axis=1)
    scopes = [next(iter(scope)) for scope in capacity.kinds]
    limits = [request.ceilings[scope].gpus // request.pod_gpus // unit for scope in scopes]
    area, cost = areas(capacity, request.policy, domains)
    # The short group comes beside the whole ones, at no cost: what it costs is not known before it is placed.
    groups = request.groups - (size.missing > 0)
    each = [_Scope(held[kind == number], cost[area[kind == number]]) for number in range(len(scopes))]
    if request.policy is Policy.FEWEST_BLOCKS:
        each = [_Scope(*_summed(held, area, kind == number, cost)) for number in range(len(scopes))]
    found = _prices(each, limits, groups)
    if found is None or lcm(*(price.denominator for price in found)) > MAX_DENOMINATOR:
        return None
    denominator = lcm(*(price.denominator for price in found))
    prices = [int(price * denominator) for price in found]
    price = np.array(prices, dtype=np.int64)[kind]
    if float(cost.sum()) * denominator + float(held.sum() + groups) * max(prices) >= MOST:
        return None
    worthwhile = np.zeros(len(cost), dtype=np.int64)
    np.add.at(worthwhile, area, held * price)
    reduced = cost * denominator - worthwhile
    best = max(prices)
    ceilings = sum((best - one) * limit for one, limit in zip(prices, limits, strict=True))
    bound = best * groups - ceilings + int(np.minimum(reduced, 0).sum())
    return Worth(held, area, reduced, np.zeros(len(cost), dtype=np.bool_), price, denominator, 0, bound)


class _Scope(NamedTuple):
    """What a scope has: groups and cost of each of its domains, or of its parts of blocks."""

    holds: Integers
    cost: Integers


def _summed(held: Integers, area: Integers, within: Integers, cost: Integers) -> tuple[Integers, Integers]:
    holds = np.bincount(area[within], weights=held[within], minlength=len(cost)).astype(np.int64)
    return holds, cost


def _prices(scopes: Sequence[_Scope], limits: Sequence[int], groups: int) -> list[Fraction] | None:
    """Return a price for each scope. A scope that would have more than its ceiling at the common price has its own."""
    found: list[Fraction | None] = [None] * len(scopes)
    while True:
        free = [number for number, price in enumerate(found) if price is None]
        if groups < 1 or not free:
            return None
        price, used = _price([scopes[number] for number in free], groups)
        if price is None:
            return None
        over = [number for number, count in zip(free, used, strict=True) if count > limits[number]]
        if not over:
            return [price if one is None else min(one, price) for one in found]
        for number in over:
            own, _ = _price([scopes[number]], limits[number]) if limits[number] else (Fraction(0), [])
            found[number] = own
            groups -= limits[number]


def _price(scopes: Sequence[_Scope], groups: int) -> tuple[Fraction | None, list[int]]:
    """Return the price at which scopes have so many groups together, and how many each has; None if they have fewer."""
    holds = np.concatenate([scope.holds for scope in scopes])
    cost = np.concatenate([scope.cost for scope in scopes])
    of = np.repeat(np.arange(len(scopes)), [len(scope.holds) for scope in scopes])
    if int(holds.sum()) < groups:
        return None, []
    some = np.flatnonzero(holds)
    order = some[np.argsort(cost[some] / holds[some], kind="stable")]
    reach = np.cumsum(holds[order])
    last = int(np.searchsorted(reach, groups))
    taken = holds[order[: last + 1]].copy()
    taken[-1] -= int(reach[last]) - groups
    used = np.bincount(of[order[: last + 1]], weights=taken, minlength=len(scopes)).astype(np.int64)
    return Fraction(int(cost[order[last]]), int(holds[order[last]])), used.tolist()
