"""Why a run does not fit, worked out by trying: the judge of what a refusal says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gkm.packing.values import Level, Location, Node, Request
from support.packing.brute import fits
from support.packing.costs import usable


def binding_level(nodes: Sequence[Node], request: Request) -> Level:
    """Return the first level that keeps a run of one size from fitting. It must not fit.

    Selectors have chosen the nodes before, so that no nodes at all stand for every reason not to use one.
    """
    if not nodes:
        return Level.FLAVOR
    if request.ceilings and fits(nodes, replace(request, ceilings=(), malleability=None)):
        return Level.SCOPE
    slots: Counter[Location] = Counter()
    for node in usable(nodes, request):
        slots[node.place] += node.free // request.pod_gpus
    most = max(slots.values(), default=0)
    if not most:
        return Level.NODE
    largest = request.group_pods if request.groups > 1 else request.last_pods
    if not request.may_spread or most < largest:
        return Level.DOMAIN
    return Level.CAPACITY
