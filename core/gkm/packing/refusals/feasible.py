"""Whether a run fits at all, by counting alone where that is enough: for questions that are asked many times."""

from dataclasses import replace
from math import lcm

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing_scopes import choose_of_scopes
from gkm.packing.domains.counting import apart, ceilings, counted
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.values import Request

__all__ = ("apart", "ceilings", "feasible", "smallest")

MAX_STAYING = 20_000
MAX_LEAVING = 100
"""Domains times groups up to which a run is asked of the tables, which takes some hundredths of a second then; where
spares may leave domains times groups squared. Changes are tried some dozen times, and are told within two seconds."""


def feasible(offer: Capacity, request: Request) -> bool:
    """Return whether a run fits in the size that it asks for; malleability is not looked at.

    Raises:
        TooLargeError: nodes are in several of the run's scopes, and there is too much to try.
    """
    fits = counted(offer, request)
    if fits is not None:
        return fits
    _check(offer, request)
    return choose_of_scopes(offer, request) is not None


def _check(offer: Capacity, request: Request) -> None:
    leaving = request.may_spread and request.spares > 0
    work = len(offer.inventory.places) * request.groups * (request.groups if leaving else 1)
    if work > (MAX_LEAVING if leaving else MAX_STAYING):
        raise TooLargeError(
            f"nodes of one domain are in different scopes of the run: {len(offer.inventory.places)} domains and "
            f"{request.groups} groups are more than changes are tried for; ask for fewer scopes or larger groups"
        )


def smallest(request: Request) -> Request:
    """Return a run of the smallest size that a malleable one may have, else the request itself."""
    malleability = request.malleability
    if malleability is None:
        return request
    # Sizes that do not divide into pods are none of a run.
    step = lcm(malleability.step_gpus, request.pod_gpus)
    steps = max(0, (request.gpus - malleability.min_gpus) // step)
    return replace(request, gpus=request.gpus - steps * step, malleability=None)
