"""Whether a run fits where scopes overlap, but the nodes of each domain are all in the same ones. By counting."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.domains.mixtures import subsets
from gkm.packing.domains.options import shape
from gkm.packing.inventory import Integers
from gkm.packing.values import Request

MAX_SCOPES = 8
"""As many as are planned exactly; the ways to cut double with each."""


def uniform(offer: Capacity) -> bool:
    """Return whether the nodes of each domain that have slots are all in the same scopes."""
    return bool(((offer.slots > 0).sum(axis=1) <= 1).all())


def counted_by_kind(offer: Capacity, request: Request, given: Sequence[int]) -> bool:
    """Return whether a run that may spread fits with all spares in their domains; `given` are ceilings in pods.

    Groups flow from the domains of a kind to its scopes, each within its ceiling. The most that flow are the fewest
    that some cut lets through: some scopes at their ceilings, and all domains that other scopes take too.

    Raises:
        TooLargeError: the scopes are too many.
    """
    if len(given) > MAX_SCOPES:
        raise TooLargeError(f"{len(given)} scopes overlap, and changes are tried for {MAX_SCOPES} at most")
    size = shape(request)
    unit = size.pods + size.spares
    groups = (offer.slots // unit).sum(axis=0)
    limits = np.array([pods // unit for pods in given], dtype=np.int64)
    cuts = _cuts(offer.kinds, len(given))
    through = cuts.scopes @ limits + cuts.kinds @ groups
    if not size.missing:
        return int(through.min()) >= request.groups
    # The short group goes first: where it fits beside the whole ones it takes the place of none.
    last = unit - size.missing
    more = (offer.slots + size.missing) // unit > offer.slots // unit
    extra = [bool(column.any()) for column in more.T]
    for number, kind in enumerate(offer.kinds):
        less = 0 if extra[number] else 1
        for scope in kind:
            if groups[number] < less or given[scope] < last:
                continue
            lower = int(limits[scope]) - (given[scope] - last) // unit
            left = through - cuts.kinds[:, number] * less - cuts.scopes[:, scope] * lower
            if int(left.min()) >= request.groups - 1:
                return True
    return False


class _Cuts(NamedTuple):
    """A row for each cut: which scopes stand in it at their ceilings, and which kinds of domains are let through."""

    scopes: Integers
    kinds: Integers


@lru_cache(maxsize=4)  # asked some dozen times for one run
def _cuts(kinds: tuple[frozenset[int], ...], scopes: int) -> _Cuts:
    cuts = [frozenset[int](), *subsets(range(scopes))]
    within = [[scope in cut for scope in range(scopes)] for cut in cuts]
    let_through = [[not kind <= cut for kind in kinds] for cut in cuts]
    # Integers of numpy and no booleans, which it would add up as such.
    return _Cuts(np.array(within, dtype=np.int64), np.array(let_through, dtype=np.int64))
