"""Whether a run fits, by counting alone, where that is enough: at once, however large it is (calculus.md)."""

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.counting_kinds import counted_by_kind, uniform
from gkm.packing.domains.options import shape
from gkm.packing.inventory import Integers
from gkm.packing.values import MAX_GPUS, Request


def counted(offer: Capacity, request: Request) -> bool | None:
    """Return whether a run fits in the size that it asks for; None where counting does not tell.

    It does where no node is in several of the run's scopes, and where all nodes of a domain are in the same ones and
    spares need not leave.

    Raises:
        TooLargeError: scopes overlap, and are too many.
    """
    if not apart(offer):
        if request.may_spread and uniform(offer):
            if counted_by_kind(offer, request, ceilings(request)):
                return True
            if not request.spares:
                return False
        return None
    whole, short = _spread(offer, request) if request.may_spread else _together(offer, request)
    # A row per domain (or one for all of them) and a column per scope. The short group is in one scope at most.
    most = whole.sum(axis=1)
    gained = (short - whole).max(axis=1)
    return bool((most + gained >= request.groups).any())


def apart(offer: Capacity) -> bool:
    """Return whether no node is in several of the run's scopes: then each scope can be counted for itself."""
    return all(len(kind) == 1 for kind in offer.kinds)


def ceilings(request: Request) -> tuple[int, ...]:
    """Return what each scope gives at most, in pods. A request without scopes has one that gives everything."""
    return tuple(ceiling.gpus // request.pod_gpus for ceiling in request.ceilings) or (MAX_GPUS,)


def _spread(offer: Capacity, request: Request) -> tuple[Integers, Integers]:
    """Return the most groups of each scope, all of them whole, and with the short last one among them."""
    size = shape(request)
    unit = size.pods + size.spares
    whole, short = [], []
    for scope, given in enumerate(ceilings(request)):
        slots = offer.scope_slots(frozenset({scope}))
        # Spares may lie in any domain of their scope, so that for them only the sum of slots counts.
        limit = min(given, int(slots.sum()))
        groups = int((slots // size.pods).sum())
        extra = bool(((slots + size.missing) // size.pods > slots // size.pods).any())
        whole.append(min(groups, limit // unit))
        short.append(min(groups + extra, (limit + size.missing) // unit))
    return np.array([whole], dtype=np.int64), np.array([short], dtype=np.int64)


def _together(offer: Capacity, request: Request) -> tuple[Integers, Integers]:
    """Return the same for each domain alone, in which all spares stay."""
    size = shape(request)
    unit = size.pods + size.spares
    columns = [
        np.minimum(offer.scope_slots(frozenset({scope})), given) for scope, given in enumerate(ceilings(request))
    ]
    slots = np.stack(columns, axis=1)
    return slots // unit, (slots + size.missing) // unit
