"""What no plan is better than where scopes have ceilings that bind (calculus.md, Proof).

With its m largest domains a scope has min(ceiling, what they hold) groups, and each one more adds no more than the one
before. So of several scopes the largest additions come first, and the fewest that reach the groups are the bound. A
block that is in several scopes is tried both ways: used, for all of them, or not.
"""

from itertools import combinations

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.narrowing_scopes import worth_of_scopes
from gkm.packing.domains.options import shape
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy, Request

MAX_SHARED = 8
"""Blocks in several scopes up to which all choices of them are tried."""


def least_of_scopes(capacity: Capacity, request: Request, taken: int) -> int:
    """Return a bound for a run all of whose spares stay: 0 where scopes overlap or cut through domains.

    Of the GPUs that are free in used domains `taken` are not stranded.
    """
    domains = np.flatnonzero(capacity.domain_slots)
    found = worth_of_scopes(capacity, request, domains)
    if found is None:
        return 0
    if request.policy is Policy.LEAST_WASTE:
        return found.fewest - taken
    size = shape(request)
    unit = size.pods + size.spares
    holds = capacity.slots // unit
    if request.policy is Policy.FEWEST_BLOCKS:
        summed = np.zeros((int(capacity.inventory.blocks[-1]) + 1, holds.shape[1]), dtype=np.int64)
        np.add.at(summed, capacity.inventory.blocks, holds)
        holds = summed
    limits = [request.ceilings[next(iter(kind))].gpus // request.pod_gpus // unit for kind in capacity.kinds]
    # Whole groups alone are counted: the short one may lie where no whole one has room.
    return max(found.fewest, _fewest(holds, np.array(limits, dtype=np.int64), request.groups - (size.missing > 0)))


def _fewest(holds: Integers, limits: Integers, groups: int) -> int:
    """Return the fewest areas that reach the groups; `holds` has a row for each area and a column for each scope."""
    shared = np.flatnonzero((holds > 0).sum(axis=1) > 1).tolist()
    if len(shared) > MAX_SHARED:
        return 0
    alone = np.delete(holds, shared, axis=0)
    alone = -np.sort(-alone, axis=0)
    return min(
        len(used) + _additions(alone, holds[list(used)].sum(axis=0), limits, groups)
        for count in range(len(shared) + 1)
        for used in combinations(shared, count)
    )


def _additions(alone: Integers, first: Integers, limits: Integers, groups: int) -> int:
    """Return how many areas it takes beside those that hold `first`; more than there are where none are enough."""
    reach = np.minimum(np.concatenate((first[None], first + np.cumsum(alone, axis=0))), limits)
    added = -np.sort(-np.diff(reach, axis=0), axis=None)
    total = np.concatenate(([0], np.cumsum(added))) + int(reach[0].sum())
    return int(np.searchsorted(total, groups))
