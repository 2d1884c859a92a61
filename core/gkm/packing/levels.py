"""Which level keeps a run from fitting, in a sentence with the numbers that a person compares."""

from dataclasses import replace

from gkm.api.grammar import agree, count_of
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.domains.steps import shape
from gkm.packing.placement import fits
from gkm.packing.values import Level, Request


def binding(offer: Capacity, request: Request, largest_groups: int) -> tuple[Level, str]:
    """Return the first level that keeps a run from fitting, and why. The run must not fit.

    Levels are looked at from the inventory down: are there nodes, do scopes withhold what is there, is a node large
    enough for a pod, a domain for a group (for the whole run if it may not spread); else there is too little in all.
    The levels of selectors are known to whoever chose the nodes: here all of them may be used.
    """
    size = shape(request)
    pod = f"pods of {count_of(request.pod_gpus, 'GPU')}"
    slots = offer.domain_slots
    if not offer.inventory.nodes:
        return Level.FLAVOR, "there is no node that the run may use: none is healthy, tolerated and of its flavor"
    if request.ceilings and _fits_without_scopes(offer, request):
        given = ", ".join(f"{ceiling.scope} gives {count_of(ceiling.gpus, 'GPU')}" for ceiling in request.ceilings)
        return Level.SCOPE, (
            f"{_wanted(request)} would fit on the nodes there are, but not within the scopes ({given}): "
            f"{_largest(largest_groups)}"
        )
    if not slots.any():
        within = (node.free for node in offer.inventory.nodes if node.scopes or not request.ceilings)
        most = max(within, default=0)
        return (
            Level.NODE,
            f"no node has {count_of(request.pod_gpus, 'GPU')} free, which one pod takes; the most is {most}",
        )
    most = int(slots.max())
    if not request.may_spread:
        needed = request.groups * (size.pods + size.spares) - size.missing
        return Level.DOMAIN, (
            f"the run may not spread and takes {needed} {pod} in one domain, spares included; the largest domain has "
            f"room for {most}: {_largest(largest_groups)}"
        )
    pods = request.last_pods if request.groups == 1 else size.pods
    if most < pods:
        return Level.DOMAIN, f"a group takes {pods} {pod} in one domain; the largest domain has room for {most}"
    bare = count_of(int((slots // size.pods).sum()), "group")
    return Level.CAPACITY, (
        f"{_wanted(request)} {agree(request.groups, 'does', 'do')} not fit: domains have room for {int(slots.sum())} "
        f"{pod}, spares included, and {bare} without spares; {_largest(largest_groups)}"
    )


def _fits_without_scopes(offer: Capacity, request: Request) -> bool:
    unlimited = replace(request, ceilings=())
    return fits(capacity(offer.inventory, unlimited), unlimited)


def _wanted(request: Request) -> str:
    spares = f" and {count_of(request.spares, 'spare pod')} each" if request.spares else ""
    return f"{count_of(request.groups, 'group')} of {count_of(request.group_gpus, 'GPU')}{spares}"


def _largest(groups: int) -> str:
    return f"{count_of(groups, 'whole group')} {agree(groups, 'fits', 'fit')}" if groups else "not one whole group fits"
