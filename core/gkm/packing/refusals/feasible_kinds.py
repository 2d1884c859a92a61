"""Whether a run fits where scopes overlap, but the nodes of each domain are all in the same ones. By counting."""

from collections.abc import Sequence

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.mixtures import subsets
from gkm.packing.domains.options import shape
from gkm.packing.values import Request


def uniform(offer: Capacity) -> bool:
    """Return whether the nodes of each domain that have slots are all in the same scopes."""
    return bool(((offer.slots > 0).sum(axis=1) <= 1).all())


def counted_by_kind(offer: Capacity, request: Request, given: Sequence[int]) -> bool:
    """Return whether a run that may spread fits with all spares in their domains; `given` are ceilings in pods.

    Groups flow from the domains of a kind to its scopes, each within its ceiling. The most that flow are the fewest
    that some cut lets through: some scopes at their ceilings, and all domains that other scopes take too.
    """
    size = shape(request)
    unit = size.pods + size.spares
    groups = [int(column.sum()) for column in (offer.slots // unit).T]
    if not size.missing:
        return _most(offer.kinds, groups, [pods // unit for pods in given]) >= request.groups
    # The short group goes first: where it fits beside the whole ones it takes the place of none.
    last = unit - size.missing
    more = (offer.slots + size.missing) // unit > offer.slots // unit
    extra = [bool(column.any()) for column in more.T]
    for number, kind in enumerate(offer.kinds):
        for scope in kind:
            left = [*groups]
            left[number] -= not extra[number]
            limits = [pods // unit for pods in given]
            limits[scope] = (given[scope] - last) // unit
            possible = left[number] >= 0 and given[scope] >= last
            if possible and _most(offer.kinds, left, limits) >= request.groups - 1:
                return True
    return False


def _most(kinds: Sequence[frozenset[int]], groups: Sequence[int], limits: Sequence[int]) -> int:
    cuts = [frozenset[int](), *subsets(range(len(limits)))]
    return min(
        sum(limits[scope] for scope in cut)
        + sum(count for kind, count in zip(kinds, groups, strict=True) if not kind <= cut)
        for cut in cuts
    )
