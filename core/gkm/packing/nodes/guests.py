"""Place spares that find no slot in the domain of their group into other domains, as near as possible (calculus.md).

Levels are gone through from the domain on, and a level is left only when it is full. Within a level the domains that
the run uses come first, because what they keep free is stranded; then keys decide. A domain gives a spare no slot that
others cannot do without: what has to stay there, and spares that find no other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.nodes.demands import UNLIMITED, GroupDemand, Slack
from gkm.packing.values import Distance, Spare

Demand = Mapping[int, int]
"""Slots needed by each scope."""


class Departure(NamedTuple):
    """Spares of a scope's groups in a domain that may be placed in another domain."""

    domain: int
    scope: int
    spares: int


class Guests(NamedTuple):
    """The domain in which some of these spares are placed. Distance.DOMAIN means that they stayed."""

    domain: int
    distance: Distance
    spares: int


def assign_guests(
    capacity: Capacity, stays: Mapping[int, Demand], departures: Sequence[Departure]
) -> list[list[Guests]]:
    """Return where the spares of each departure are placed, nearest first; `stays` are slots that domains must keep.

    Where all fit together, all are placed; else where no node is in several scopes as many as fit. Within each level
    are as many spares as can be, where no node is in several scopes. Else no spare can be nearer unless another one
    leaves a level for it.
    """
    # 1. From the domain on, each level groups the domains with free slots by area, those that the run uses first.
    # 2. Each departure takes slots of its area in order; a level is left only when it is full.
    apart = all(len(kind) == 1 for kind in capacity.kinds)
    free = _DisjointScopes(capacity, stays) if apart else _OverlappingScopes(capacity, stays, departures)
    placed: list[list[Guests]] = [[] for _ in departures]
    left = [departure.spares for departure in departures]
    for distance in Distance:
        near = _by_area(capacity, stays, distance) if any(left) else {}
        passed: dict[tuple[object, int], int] = {}
        for number, (home, scope, _) in enumerate(departures):
            area = area_of(capacity.inventory, home, distance)
            domains = near.get(area, ())
            at = passed.get((area, scope), 0)
            while left[number] and at < len(domains):
                count = min(left[number], free.most(domains[at], scope))
                if count:
                    free.take(domains[at], scope, count)
                    placed[number].append(Guests(domains[at], distance, count))
                    left[number] -= count
                # The slots that a domain has for a scope only decrease, so a full one is full for all that follow.
                at += left[number] > 0
            passed[area, scope] = at
    return placed


def hosted_demands(departed: Iterable[tuple[int, Sequence[Guests]]]) -> dict[int, list[GroupDemand]]:
    """Return, for each domain, the demands of spares from other domains, by scope."""
    hosted: dict[int, Counter[int]] = {}
    for scope, some in departed:
        for guest in some:
            hosted.setdefault(guest.domain, Counter())[scope] += guest.spares
    return {
        domain: [GroupDemand(0, count, scope) for scope, count in sorted(scopes.items())]
        for domain, scopes in sorted(hosted.items())
    }


def guest_spares(
    capacity: Capacity, scope: int, guests: Iterable[Guests], nodes: Mapping[tuple[int, int], Iterator[str]]
) -> list[Spare]:
    """Return the spares of a scope with their nodes in other domains.

    `nodes` has the nodes left by domain and scope.
    """
    places, gpus = capacity.inventory.places, capacity.pod_gpus
    return [
        Spare(node, gpus, places[guest.domain], guest.distance)
        for guest in guests
        for node in islice(nodes[guest.domain, scope], guest.spares)
    ]


def distance_between(inventory: Inventory, one: int, other: int) -> Distance:
    """Return the closest level at which two domains are in the same area."""
    areas = ((distance, area_of(inventory, one, distance)) for distance in Distance)
    return next(
        distance for distance, area in areas if area is not None and area == area_of(inventory, other, distance)
    )


def area_of(inventory: Inventory, domain: int, distance: Distance) -> tuple[object, ...] | None:
    """Return the area around a domain at this distance; None if its rack is not known."""
    place = inventory.places[domain]
    if distance is Distance.RACK:
        rack = inventory.racks[domain]
        return (*place[:2], rack) if rack else None
    return place[: {Distance.DOMAIN: 4, Distance.BLOCK: 3, Distance.CLUSTER: 2, Distance.REGION: 1}.get(distance, 0)]


def _by_area(
    capacity: Capacity, stays: Mapping[int, Demand], distance: Distance
) -> dict[tuple[object, ...] | None, list[int]]:
    free = capacity.domain_slots
    for domain, demand in stays.items():
        free[domain] -= sum(demand.values())
    found: dict[tuple[object, ...] | None, list[int]] = {}
    for domain in sorted(np.flatnonzero(free > 0).tolist(), key=lambda domain: (domain not in stays, domain)):
        found.setdefault(area_of(capacity.inventory, domain, distance), []).append(domain)
    found.pop(None, None)
    return found


class _DisjointScopes:
    """Free slots for spares where no node is in several scopes: a scope's are its own."""

    def __init__(self, capacity: Capacity, stays: Mapping[int, Demand]) -> None:
        nothing = np.zeros(len(capacity.slots), dtype=np.int64)
        self._slots: dict[int, Integers] = {}
        for number, (scope,) in enumerate(capacity.kinds):
            self._slots[scope] = self._slots.get(scope, nothing) + capacity.slots[:, number]
        for domain, demand in stays.items():
            for scope, count in demand.items():
                self._slots[scope][domain] -= count

    def most(self, domain: int, scope: int) -> int:
        """Return how many spares of a scope a domain can have."""
        return int(self._slots[scope][domain])

    def take(self, domain: int, scope: int, count: int) -> None:
        self._slots[scope][domain] -= count


class _OverlappingScopes:
    """Free slots where scopes overlap, by Hall's theorem (`slack`).

    For every choice of scopes the spares that still leave must be no more than all domains together have for it. The
    slots that a domain has for a choice are the least slack of all choices around it.
    """

    def __init__(self, capacity: Capacity, stays: Mapping[int, Demand], departures: Sequence[Departure]) -> None:
        self._capacity = capacity
        scopes = {scope for demand in stays.values() for scope in demand} | {one.scope for one in departures}
        self._taken = {domain: {**dict.fromkeys(scopes, 0), **demand} for domain, demand in stays.items()}
        self._nothing = dict.fromkeys(sorted(scopes), 0)
        leaving = dict(self._nothing)
        for departure in departures:
            leaving[departure.scope] += departure.spares
        self._spare = Slack({}, leaving).left + sum(self._reach(domain) for domain in range(len(capacity.slots)))

    def _reach(self, domain: int) -> Integers:
        row = self._capacity.slots[domain].tolist()
        slots: Counter[frozenset[int]] = Counter()
        for kind, count in zip(self._capacity.kinds, row, strict=False):
            slots[kind] += count
        return Slack(slots, self._taken.get(domain, self._nothing)).reach()

    def most(self, domain: int, scope: int) -> int:
        bit = 1 << sorted(self._nothing).index(scope)
        choices = np.arange(len(self._spare))
        without = choices[choices & bit == 0]
        reach = self._reach(domain)
        return int((self._spare[without] + reach[without | bit] - reach[without]).min(initial=UNLIMITED))

    def take(self, domain: int, scope: int, count: int) -> None:
        bit = 1 << sorted(self._nothing).index(scope)
        before = self._reach(domain)
        demand = self._taken.setdefault(domain, dict(self._nothing))
        demand[scope] += count
        self._spare += self._reach(domain) - before + count * ((np.arange(len(self._spare)) & bit) != 0)
