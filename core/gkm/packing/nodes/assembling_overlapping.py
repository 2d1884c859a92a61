"""From how many groups each domain takes to nodes, where spares must leave and nodes are in several scopes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen
from gkm.packing.nodes.dealing import Deal
from gkm.packing.nodes.inside import Seat, Wanted, lay_out
from gkm.packing.nodes.scopes import Scopes, seats_by_kind, split
from gkm.packing.values import Distance, Group, Location, Request, Share, Spare

_DISTANCES = (Distance.NONE, Distance.REGION, Distance.CLUSTER, Distance.BLOCK, Distance.DOMAIN)


class _Want(NamedTuple):
    """Slots for the groups of a scope in a domain: those that must be there, or those of spares that may leave."""

    domain: int
    scope: int
    leaves: bool


class _Kind(NamedTuple):
    domain: int
    scopes: Scopes


def assemble_overlapping(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> tuple[Group, ...] | None:
    """Return the groups in the order of their index; None if spares that leave find no slot."""
    places = capacity.inventory.places
    dealt = _deal(capacity, request, chosen)
    if dealt is None:
        return None
    seats = _seats(capacity, dealt)
    names = [ceiling.scope for ceiling in request.ceilings]
    pod_gpus = request.pod_gpus
    groups: list[Group] = []
    following = 0
    for item, scope, pods in _sites(request, chosen):
        place = places[item.domain]
        staying = len(pods) - item.away[scope]
        wanted = [Wanted(size, request.spares if at < staying else 0) for at, size in enumerate(pods)]
        layout = lay_out([seat for _, seat in seats[_Want(item.domain, scope, leaves=False)]], wanted)
        far = _nearest(place, places, seats[_Want(item.domain, scope, leaves=True)])
        for at, (group, seated) in enumerate(zip(wanted, layout.groups, strict=True)):
            last = scope == item.short and at == len(pods) - 1
            spares = [Spare(node, pod_gpus, place, Distance.DOMAIN) for node in seated.spares]
            spares += [
                Spare(node, pod_gpus, there, _distance(place, there))
                for node, there in (next(far) for _ in range(0 if group.spares else request.spares))
            ]
            index = request.groups - 1 if last else following
            following += not last
            shares = tuple([Share(node, count * pod_gpus) for node, count in sorted(seated.pods)])
            groups.append(Group(index, group.pods * pod_gpus, place, names[scope], shares, tuple(spares)))
    return tuple(sorted(groups, key=lambda group: group.index))


def _sites(request: Request, chosen: Sequence[Chosen]) -> Iterator[tuple[Chosen, int, list[int]]]:
    for item in chosen:
        for scope, count in enumerate(item.groups):
            if count:
                short = scope == item.short
                yield item, scope, [request.group_pods] * (count - short) + [request.last_pods] * short


def _deal(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> Deal[_Want, _Kind] | None:
    places = capacity.inventory.places
    slots = {
        _Kind(domain, kind): count
        for domain in range(len(places))
        for kind, count in zip(capacity.kinds, capacity.slots[domain].tolist(), strict=True)
    }

    def order(want: _Want, kind: _Kind) -> tuple[object, ...] | None:
        if want.scope not in kind.scopes or not (want.leaves or want.domain == kind.domain):
            return None
        far = -_shared(places[want.domain], places[kind.domain])
        return far, kind.domain, len(kind.scopes), sorted(kind.scopes)

    deal: Deal[_Want, _Kind] = Deal(slots, order)
    wants: list[tuple[_Want, int]] = []
    for item, scope, pods in _sites(request, chosen):
        staying = (len(pods) - item.away[scope]) * request.spares
        wants.append((_Want(item.domain, scope, leaves=False), sum(pods) + staying))
        wants.append((_Want(item.domain, scope, leaves=True), item.away[scope] * request.spares))
    for want, count in sorted(wants, key=lambda item: (item[0].leaves, item[0])):
        if not deal.give(want, count):
            return None
    deal.settle()
    return deal


def _seats(capacity: Capacity, deal: Deal[_Want, _Kind]) -> defaultdict[_Want, list[tuple[int, Seat]]]:
    """Return the nodes of every want, with their domains."""
    parts: defaultdict[int, dict[Scopes, list[tuple[_Want, int]]]] = defaultdict(dict)
    for (want, kind), count in sorted(deal.given.items(), key=repr):
        if count:
            parts[kind.domain].setdefault(kind.scopes, []).append((want, count))
    found: defaultdict[_Want, list[tuple[int, Seat]]] = defaultdict(list)
    for domain, by_kind in parts.items():
        here = seats_by_kind(capacity, domain)
        for scopes, takers in by_kind.items():
            free = sum(seat.slots for seat in here[scopes]) - sum(count for _, count in takers)
            # What nobody wants goes to groups of the domain, for their spares to choose from; else to nobody.
            stay = next((want for want, _ in takers if not want.leaves), _Want(-1, -1, leaves=False))
            given: defaultdict[_Want, list[Seat]] = defaultdict(list)
            split(here[scopes], _raised(takers, stay, free), given)
            for want, seats in given.items():
                found[want] += [(domain, seat) for seat in seats]
    return found


def _raised(takers: Sequence[tuple[_Want, int]], stay: _Want, free: int) -> list[tuple[_Want, int]]:
    counts = dict(takers)
    counts[stay] = counts.get(stay, 0) + free
    return [(want, count) for want, count in counts.items() if count]


def _nearest(
    place: Location, places: Sequence[Location], seats: Sequence[tuple[int, Seat]]
) -> Iterator[tuple[str, Location]]:
    for domain, seat in sorted(seats, key=lambda item: (-_shared(place, places[item[0]]), item[0], item[1].name)):
        for _ in range(seat.slots):
            yield seat.name, places[domain]


def _distance(place: Location, other: Location) -> Distance:
    return _DISTANCES[_shared(place, other)]


def _shared(place: Location, other: Location) -> int:
    """Return how many levels two places share, from the region down: 4 in one domain."""
    return next((level for level in range(4) if place[level] != other[level]), 4)
