"""Spares that find no slot beside their group, and those that would share a node with it (calculus.md)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.demands import GroupDemand, NodeSlots
from gkm.packing.nodes.guests import Departure, assign_guests
from gkm.packing.nodes.layout import lay_out
from gkm.packing.replanning.groups import NewGroup
from gkm.packing.values import Location, Spare

__all__ = ("SpareSlots",)


class SpareSlots:
    """The slots that pods and colocated spares leave on every node, and the groups whose spares take them."""

    def __init__(self, offer: Capacity, groups: Sequence[NewGroup], left: dict[str, int]) -> None:
        self.offer = offer
        self.groups = groups
        self.left = left

    def overflow(self, pod_gpus: int, limits: Mapping[int, int]) -> None:
        """Place the spares that find no slot beside their group, as near as slots are left; those that stand stay."""
        standing = [(group, spare) for group in self.groups for spare in group.ready if spare.place != group.place]
        lacking = {group.index: limits[group.index] - len(group.spares) for group in self.groups}
        if not any(lacking.values()):
            return
        # Where scopes overlap one that stands may have the only slot of another: then all are placed anew.
        if not self._assigned_around(standing, lacking, pod_gpus):
            self._assigned_around([], lacking, pod_gpus)

    def _assigned_around(
        self, standing: Sequence[tuple[NewGroup, Spare]], lacking: Mapping[int, int], pod_gpus: int
    ) -> bool:
        """Place the spares beside some that stay; return whether all found a slot, and change nothing else."""
        left, rest = Counter(self.left), Counter(lacking)
        stays: list[tuple[NewGroup, Spare]] = []
        for group, spare in standing:
            if rest[group.index] > 0 and left[spare.node] > 0:
                left[spare.node] -= 1
                rest[group.index] -= 1
                stays.append((group, spare))
        leaving = [group for group in self.groups for _ in range(rest[group.index])]
        departures = [Departure(*home, count) for home, count in Counter((g.domain, g.scope) for g in leaving).items()]
        offer = self._offer_of(left)
        placed = assign_guests(offer, {group.domain: {} for group in self.groups}, departures)
        if sum(guests.spares for some in placed for guests in some) < len(leaving):
            return False
        hosted: dict[int, Counter[int]] = {}
        for departure, some in zip(departures, placed, strict=True):
            for guests in some:
                hosted.setdefault(guests.domain, Counter())[departure.scope] += guests.spares
        nodes = {
            (domain, demand.scope): iter(found.spares)
            for domain, by_scope in hosted.items()
            for demands in ([GroupDemand(0, count, scope) for scope, count in sorted(by_scope.items())],)
            for demand, found in zip(
                demands, lay_out(_nodes(offer, domain, frozenset(by_scope)), demands).groups, strict=True
            )
        }
        places = self.offer.inventory.places
        found = {
            (departure.domain, departure.scope): iter(
                [
                    Spare(next(nodes[guests.domain, departure.scope]), pod_gpus, places[guests.domain], guests.distance)
                    for guests in some
                    for _ in range(guests.spares)
                ]
            )
            for departure, some in zip(departures, placed, strict=True)
        }
        for group, spare in (*stays, *((group, next(found[group.domain, group.scope])) for group in leaving)):
            group.spares.append(spare)
            self.left[spare.node] -= 1
        return True

    def separate(self) -> None:
        """Move spares of changed groups off the nodes of their pods: to a free slot, or to that of another spare."""
        # Each change leaves fewer spares beside their group, and may make way for another one.
        while self._separated_some():
            pass

    def _separated_some(self) -> bool:
        inventory = self.offer.inventory
        by_place: dict[Location, list[tuple[NewGroup, int]]] = {}
        for group in self.groups:
            for at, spare in enumerate(group.spares):
                by_place.setdefault(spare.place, []).append((group, at))
        changed = False
        for group in self.groups:
            for at, spare in enumerate(group.spares):
                stood = not group.changed and group.member is not None and spare in group.member.spares
                if spare.node in group.nodes and not stood:
                    here = [inventory.nodes[number].name for number in inventory.in_domain(group.domain)]
                    free = [
                        name
                        for name in here
                        if self.left[name] > 0 and name not in group.nodes and self._in_scope(group, name)
                    ]
                    if free:
                        self.left[spare.node] += 1
                        self.left[free[0]] -= 1
                        group.spares[at] = replace(spare, node=free[0])
                        changed = True
                    elif self._swapped(group, at, by_place[spare.place]):
                        changed = True
        return changed

    def _swapped(self, group: NewGroup, at: int, others: Sequence[tuple[NewGroup, int]]) -> bool:
        """Exchange a spare's node with that of another spare, if fewer share a node with their group then."""
        node = group.spares[at].node
        for other, number in others:
            there = other.spares[number].node
            shared = (there in group.nodes) + (node in other.nodes)
            if shared < 1 + (there in other.nodes) and self._in_scope(group, there) and self._in_scope(other, node):
                group.spares[at] = replace(group.spares[at], node=there)
                other.spares[number] = replace(other.spares[number], node=node)
                return True
        return False

    def _in_scope(self, group: NewGroup, name: str) -> bool:
        """Return whether a node is in the scope of a group."""
        kind = int(self.offer.node_kinds[self.offer.inventory.numbers[name]])
        return kind >= 0 and group.scope in self.offer.kinds[kind]

    def _offer_of(self, left: Mapping[str, int]) -> Capacity:
        """Return what is left of the offer."""
        offer = self.offer
        slots = np.array([left[node.name] for node in offer.inventory.nodes], dtype=np.int64)
        slots[offer.node_kinds < 0] = 0
        table = np.zeros_like(offer.slots)
        np.add.at(table, (offer.inventory.domain_of, np.maximum(offer.node_kinds, 0)), slots)
        return replace(offer, node_slots=slots, slots=table)


def _nodes(offer: Capacity, domain: int, scopes: frozenset[int]) -> list[NodeSlots]:
    """Return the nodes of a domain that have slots for some scopes."""
    return [
        NodeSlots(offer.inventory.nodes[number].name, int(offer.node_slots[number]), 0, taken)
        for number in offer.inventory.in_domain(domain)
        if offer.node_slots[number] and (taken := offer.kinds[int(offer.node_kinds[number])] & scopes)
    ]
