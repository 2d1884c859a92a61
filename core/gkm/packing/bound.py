"""What no plan is better than, by an argument that shares nothing with the tables of `cover` (calculus.md, Proof)."""

import numpy as np

from gkm.packing.capacity import Capacity
from gkm.packing.inventory import Integers
from gkm.packing.options import shape
from gkm.packing.values import Policy, Request


def lower_bound(capacity: Capacity, request: Request, *, leave: bool) -> int:
    """Return the fewest domains, blocks or stranded GPUs that any plan has: what the policy compares first.

    The run must fit. `leave` says that spares cannot all stay with their groups: then domains count with what they hold
    without spares, and scopes and the number of spares that leave are not taken into account, so that the bound may be
    below what is possible.
    """
    if not request.may_spread and request.policy is not Policy.LEAST_WASTE:
        return 1
    size = shape(request)
    unit = size.pods + (0 if leave else size.spares)
    slots = capacity.domain_slots
    whole = slots // unit
    # One domain may have room for the short group beside its whole ones.
    extra = (slots + size.missing) // unit - whole
    if request.policy is Policy.LEAST_WASTE:
        return least_stranded(capacity, request, whole, extra)
    if request.policy is Policy.FEWEST_BLOCKS:
        numbers = capacity.inventory.blocks
        whole = np.bincount(numbers, weights=whole).astype(np.int64)
        extra = np.bincount(numbers, weights=extra).astype(np.int64).clip(max=1)
    return _fewest(whole, extra, request.groups)


def _fewest(whole: Integers, extra: Integers, groups: int) -> int:
    """Return the fewest whose largest capacities reach the groups, the short one in one that has room for it."""
    order = np.lexsort((-extra, -whole))
    whole, extra = whole[order], extra[order]
    reach = np.concatenate(([0], np.cumsum(whole)))
    best = reach[1:].copy()
    if extra.any():
        # m of them reach one more with the first that has room among them, or in place of the last of them.
        first = int(np.argmax(extra))
        best[first:] += 1
        best[:first] = np.maximum(best[:first], reach[:first] + whole[first] + 1)
    return int(np.searchsorted(best, groups)) + 1


def least_stranded(capacity: Capacity, request: Request, whole: Integers, extra: Integers) -> int:
    """Return the fewest GPUs that can stay free in used domains: a knapsack over domains alone, fewest free first."""
    size = shape(request)
    pods = request.groups * (size.pods + size.spares) - size.missing
    needed = request.groups
    if not request.may_spread:
        fitting = capacity.domain_slots >= pods
        return int(capacity.free[fitting].min()) - pods * capacity.pod_gpus
    impossible = 1 << 62
    least = np.full((2, needed + 1), impossible, dtype=np.int64)
    least[0, 0] = 0
    # Of domains that hold equally many, as many as could be needed: those with the fewest free GPUs.
    for index in _candidates(capacity.free, whole, extra, needed):
        groups, free = int(whole[index]), int(capacity.free[index])
        before = least.copy()
        for gain in range(2 if size.missing else 1):
            held = min(groups + (int(extra[index]) if gain else 0), needed)
            if held:
                source, target = before[0], least[gain]
                np.minimum(target[held:], source[: needed + 1 - held] + free, out=target[held:])
                np.minimum(target[:held], source[0] + free, out=target[:held])
                if not gain:
                    np.minimum(least[1, held:], before[1, : needed + 1 - held] + free, out=least[1, held:])
                    np.minimum(least[1, :held], before[1, 0] + free, out=least[1, :held])
    return max(0, int(least[1 if size.missing else 0, needed]) - pods * capacity.pod_gpus)


def _candidates(free: Integers, whole: Integers, extra: Integers, needed: int) -> list[int]:
    left: dict[tuple[int, int], int] = {}
    found = []
    for index in np.lexsort((free, whole)).tolist():
        kind = int(whole[index]), int(extra[index])
        if sum(kind):
            used = left.setdefault(kind, -(-needed // max(1, kind[0])) + 1)
            left[kind] = used - 1
            if used > 0:
                found.append(index)
    return found
