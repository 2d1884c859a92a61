"""Which domains a run uses and how many of its groups each takes, where one scope or none pays for all of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.alike import first_of_alike
from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing_leaving import taken_leaving
from gkm.packing.domains.choosing_staying import taken_staying
from gkm.packing.domains.costs import Costs, Limits, costs
from gkm.packing.domains.cover import runs
from gkm.packing.domains.options import WHOLE, Shape, shape
from gkm.packing.inventory import Integers
from gkm.packing.values import Request

__all__ = ("Chosen", "choose", "costs_of", "fits", "runs", "useful")


class Chosen(NamedTuple):
    """What a domain takes: groups by scope, and the scope of the short last group if it is there, WHOLE else.

    `domain` is its number in the inventory. Without scopes there is one, with number 0. `away` are the groups of each
    scope whose spares may leave; empty where that follows from the slots.
    """

    domain: int
    groups: tuple[int, ...]
    short: int
    away: tuple[int, ...] = ()


def fits(capacity: Capacity, request: Request, *, leave: bool) -> bool:
    """Return whether a run of at most one scope fits. Without `leave` every spare is in the domain of its group.

    Counting is enough. The short last group fits wherever a whole one does; else it needs a domain that has room for
    it beside the whole ones. Spares that leave need slots anywhere, and pods are alike, so their number decides.
    """
    size = shape(request)
    unit = size.pods + size.spares
    slots = capacity.domain_slots
    if not len(slots):
        return False
    wanted = request.groups
    if any(wanted * unit - size.missing > ceiling.gpus // request.pod_gpus for ceiling in request.ceilings):
        return False
    if not request.may_spread:
        return int(slots.max()) >= wanted * unit - size.missing
    if leave and int(slots.sum()) < wanted * unit - size.missing:
        return False
    group = size.pods if leave else unit
    whole = int((slots // group).sum())
    if whole >= wanted or not size.missing:
        return whole >= wanted
    return whole == wanted - 1 and bool(((slots + size.missing) // group > slots // group).any())


def choose(capacity: Capacity, request: Request) -> list[Chosen] | None:
    """Return what each used domain takes at least cost, in order of places; None if the run does not fit.

    Spares leave only where the run does not fit otherwise: a plan in which none does costs less than any other.

    Raises:
        TooLargeError: the run has too many groups, or could use too many domains, to be solved exactly.
    """
    if not request.may_spread:
        return _tightest(capacity, request)
    leave = not fits(capacity, request, leave=False)
    if leave and not fits(capacity, request, leave=True):
        return None
    usable = useful(capacity.domain_slots, shape(request), leave=leave)
    weights = costs_of(capacity, request, usable)
    blocks = runs(capacity.inventory.blocks[usable])
    if leave:
        taken = taken_leaving(capacity, request, usable, blocks, weights)
        return [Chosen(int(usable[domain]), groups, short) for domain, groups, short, _ in taken]
    usable = usable[_first(capacity, request, usable, blocks)]
    return [
        Chosen(int(usable[domain]), groups, short)
        for domain, groups, short, _ in taken_staying(capacity, request, usable, weights)
    ]


def _first(capacity: Capacity, request: Request, domains: Integers, blocks: Sequence[range]) -> list[int]:
    """Return which of some domains to look at. No plan of least cost uses more of a kind than hold the run, and one."""
    size = shape(request)
    slots = capacity.domain_slots[domains]
    most = -(-request.groups // np.maximum(slots // (size.pods + size.spares), 1)) + 1
    kinds = list(zip(slots.tolist(), capacity.free[domains].tolist(), strict=True))
    return first_of_alike(kinds, most.tolist(), blocks, request.groups)


def useful(slots: Integers, size: Shape, *, leave: bool) -> Integers:
    """Return the numbers of the domains that a group fits in, be it the short one."""
    smallest = size.pods - size.missing + (0 if leave else size.spares)
    found: Integers = np.flatnonzero(slots >= smallest)
    return found


def costs_of(capacity: Capacity, request: Request, domains: Integers) -> Costs:
    """Return costs wide enough for any plan in these domains: a best one has as many of each as groups, at most."""
    groups = request.groups
    blocks = len(np.unique(capacity.inventory.blocks[domains]))
    limits = Limits(
        spares=groups if request.spares else 0,
        domains=min(groups, len(domains)),
        gpus=int(capacity.free[domains].sum()),
        blocks=min(groups, blocks),
    )
    return costs(request.policy, limits)


def _tightest(capacity: Capacity, request: Request) -> list[Chosen] | None:
    if not fits(capacity, request, leave=False):
        return None
    size = shape(request)
    needed = request.groups * (size.pods + size.spares) - size.missing
    fitting = np.flatnonzero(capacity.domain_slots >= needed)
    # argmin gives the first of equals, which is the one with the smallest key.
    domain = int(fitting[np.argmin(capacity.free[fitting])])
    return [Chosen(domain, (request.groups,), 0 if size.missing else WHOLE)]
