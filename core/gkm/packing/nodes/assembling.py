"""From how many groups each domain takes to the nodes of every pod and spare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen
from gkm.packing.inventory import Integers
from gkm.packing.nodes.alone import lay_out_alone, nodes_alone
from gkm.packing.nodes.assembling_overlapping import assemble_overlapping
from gkm.packing.nodes.inside import Seated, Wanted, lay_out
from gkm.packing.nodes.rooms import Left, rooms
from gkm.packing.nodes.scopes import seats_by_scope
from gkm.packing.nodes.spares import Leaving, Placed, place_spares
from gkm.packing.values import Distance, Group, Location, Request, Share, Spare


@dataclass(slots=True)
class _Site:
    """Groups of one scope in one domain, as they are laid out."""

    scope: int
    place: Location
    indices: Sequence[int]
    wanted: Sequence[Wanted]
    seated: Sequence[Seated]
    leaving: list[int] = field(default_factory=list)


def assemble(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> tuple[Group, ...] | None:
    """Return the groups in the order of their index; None if spares that leave find no slot in their group's scope.

    Groups are numbered by place, then by scope; the short last group is the last, wherever it is. Where spares must
    leave, they are those of the groups with the highest numbers in their domain.
    """
    if any(item.away for item in chosen):
        return assemble_overlapping(capacity, request, chosen)
    sites = list(_sites(capacity, request, chosen))
    elsewhere = _elsewhere(capacity, request, chosen, sites)
    if elsewhere is None:
        return None
    names = [ceiling.scope for ceiling in request.ceilings] or [""]
    groups: list[Group] = []
    pod_gpus = request.pod_gpus
    for site in sites:
        for index, wanted, seated in zip(site.indices, site.wanted, site.seated, strict=True):
            spares = [Spare(node, pod_gpus, site.place, Distance.DOMAIN) for node in seated.spares]
            spares += [Spare(far.node, pod_gpus, far.place, far.distance) for far in elsewhere.get(index, ())]
            shares = tuple([Share(node, pods * pod_gpus) for node, pods in sorted(seated.pods)])
            gpus = wanted.pods * pod_gpus
            groups.append(Group(index, gpus, site.place, names[site.scope], shares, tuple(spares)))
    return tuple(sorted(groups, key=lambda group: group.index))


def _sites(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> Iterator[_Site]:
    following = 0
    for item in chosen:
        alone = nodes_alone(capacity, item.domain) if len(item.groups) == 1 else None
        seats = seats_by_scope(capacity, item.domain, _asked(capacity, request, item)) if alone is None else {}
        for scope, count in enumerate(item.groups):
            if not count:
                continue
            short = scope == item.short
            pods = [request.group_pods] * (count - short) + [request.last_pods] * short
            indices = [*range(following, following + count - short), *[request.groups - 1] * short]
            following += count - short
            slots = sum(seat.slots for seat in seats[scope]) if alone is None else len(alone)
            wanted = _staying(slots, pods, request.spares)
            seated = lay_out(seats[scope], wanted).groups if alone is None else lay_out_alone(alone, wanted)
            site = _Site(scope, capacity.inventory.places[item.domain], indices, wanted, seated)
            if request.spares:
                for index, group in zip(indices, wanted, strict=True):
                    site.leaving += [index] * (request.spares - group.spares)
            yield site


def _asked(capacity: Capacity, request: Request, item: Chosen) -> dict[int, int]:
    """Return how many slots of a domain each scope wants. Spares that must leave want none there."""
    unit = request.group_pods + request.spares
    if len(item.groups) == 1:
        # Nobody to share with: whatever is asked for, all nodes are had.
        return {0: item.groups[0]}
    asked: dict[int, int] = {}
    for scope, count in enumerate(item.groups):
        if count:
            missing = request.group_pods - request.last_pods if scope == item.short else 0
            here = capacity.slots[item.domain]
            offered = sum(int(slots) for kind, slots in zip(capacity.kinds, here, strict=False) if scope in kind)
            asked[scope] = min(count * unit - missing, offered)
    return asked


def _staying(slots: int, pods: Sequence[int], spares: int) -> list[Wanted]:
    lacking = max(0, sum(pods) + spares * len(pods) - slots) if spares else 0
    wanted = []
    for size in reversed(pods):
        leaving = min(spares, lacking)
        lacking -= leaving
        wanted.append(Wanted(size, spares - leaving))
    return wanted[::-1]


def _elsewhere(
    capacity: Capacity, request: Request, chosen: Sequence[Chosen], sites: Sequence[_Site]
) -> Mapping[int, list[Placed]] | None:
    leaving = [Leaving(index, site.place, site.scope) for site in sites for index in site.leaving]
    if not leaving:
        return {}
    placed = place_spares(leaving, rooms(capacity, _left(capacity, chosen, sites), _departures(capacity, leaving)))
    if placed is None:
        return None
    found: dict[int, list[Placed]] = {index: [] for index in range(request.groups)}
    for spare in placed:
        found[spare.group].append(spare)
    return found


def _left(capacity: Capacity, chosen: Sequence[Chosen], sites: Sequence[_Site]) -> Left:
    """Return the slots that the groups leave."""
    taken: dict[str, int] = {}
    for site in sites:
        for group in site.seated:
            for name, pods in (*group.pods, *((name, 1) for name in group.spares)):
                taken[name] = taken.get(name, 0) + pods
    slots = capacity.node_slots.copy()
    used = np.zeros(len(capacity.inventory.places), dtype=np.bool_)
    for item in chosen:
        used[item.domain] = True
        for number in capacity.inventory.in_domain(item.domain):
            slots[number] -= taken.get(capacity.inventory.nodes[number].name, 0)
    return Left(slots, used)


def _departures(capacity: Capacity, leaving: Sequence[Leaving]) -> Integers:
    """Return how many spares leave each domain."""
    numbers = {place: number for number, place in enumerate(capacity.inventory.places)}
    found: Integers = np.bincount([numbers[spare.place] for spare in leaving], minlength=len(numbers))
    return found
