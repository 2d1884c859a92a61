"""Whether a run fits at all, by counting alone where that is enough: for questions that are asked many times."""

from dataclasses import replace
from math import lcm

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing_scopes import choose_of_scopes
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.domains.options import shape
from gkm.packing.inventory import Integers
from gkm.packing.refusals.feasible_kinds import counted_by_kind, uniform
from gkm.packing.values import MAX_GPUS, Request

MAX_STAYING = 20_000
MAX_LEAVING = 100
"""Domains times groups up to which a run is asked of the tables, which takes some hundredths of a second then; where
spares may leave domains times groups squared. Changes are tried some dozen times, and are told within two seconds."""


def feasible(offer: Capacity, request: Request) -> bool:
    """Return whether a run fits in the size that it asks for; malleability is not looked at.

    Raises:
        TooLargeError: nodes are in several of the run's scopes, and there is too much to try.
    """
    if not apart(offer):
        if request.may_spread and uniform(offer):
            # Domains of one kind each can be counted too, while all spares stay.
            if counted_by_kind(offer, request, ceilings(request)):
                return True
            if not request.spares:
                return False
        _check(offer, request)
        return choose_of_scopes(offer, request) is not None
    whole, short = _spread(offer, request) if request.may_spread else _together(offer, request)
    # A row per domain (or one for all of them) and a column per scope. The short group is in one scope at most.
    most = whole.sum(axis=1)
    gained = (short - whole).max(axis=1)
    return bool((most + gained >= request.groups).any())


def _check(offer: Capacity, request: Request) -> None:
    leaving = request.may_spread and request.spares > 0
    work = len(offer.inventory.places) * request.groups * (request.groups if leaving else 1)
    if work > (MAX_LEAVING if leaving else MAX_STAYING):
        raise TooLargeError(
            f"nodes of one domain are in different scopes of the run: {len(offer.inventory.places)} domains and "
            f"{request.groups} groups are more than changes are tried for; ask for fewer scopes or larger groups"
        )


def apart(offer: Capacity) -> bool:
    """Return whether no node is in several of the run's scopes: then each scope can be counted for itself."""
    return all(len(kind) == 1 for kind in offer.kinds)


def ceilings(request: Request) -> tuple[int, ...]:
    """Return what each scope gives at most, in pods. A request without scopes has one that gives everything."""
    return tuple(ceiling.gpus // request.pod_gpus for ceiling in request.ceilings) or (MAX_GPUS,)


def smallest(request: Request) -> Request:
    """Return a run of the smallest size that a malleable one may have, else the request itself."""
    malleability = request.malleability
    if malleability is None:
        return request
    # Sizes that do not divide into pods are none of a run.
    step = lcm(malleability.step_gpus, request.pod_gpus)
    steps = max(0, (request.gpus - malleability.min_gpus) // step)
    return replace(request, gpus=request.gpus - steps * step, malleability=None)


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
