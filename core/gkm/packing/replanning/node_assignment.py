"""The nodes of every pod and spare after a loss, from how many groups each domain takes (calculus.md, After a loss).

A lost pod goes to a spare of its group in the domain, else to a free slot, else to the spare of a neighbor: a running
pod is worth more than a ready spare. Pods that stand keep their slots, and so do spares that no pod needs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.demands import GroupDemand, NodeSlots, free_nodes
from gkm.packing.nodes.guests import Departure, Guests, assign_guests, guest_spares, hosted_demands
from gkm.packing.nodes.layout import Layouts
from gkm.packing.replanning.layers import arrivals
from gkm.packing.replanning.model import Assignment
from gkm.packing.replanning.surviving_groups import NewGroup, SurvivingPlan
from gkm.packing.values import Distance, Location, Request, Spare


def assign_nodes(offer: Capacity, request: Request, surviving: SurvivingPlan, chosen: Assignment) -> list[NewGroup]:
    """Return all groups with the nodes of their pods and spares, sorted by number."""
    # 1. Groups stand where the assignment has them, with the pods that keep their slots.
    # 2. In each domain and scope groups that stay get nodes for lost pods: of their spares, free ones, or of neighbors.
    # 3. Groups that come from elsewhere are laid out on what is free.
    # 4. Spares are colocated; where there is no slot they go elsewhere, and off the nodes of their group.
    groups = _assigned_groups(offer, request, surviving, chosen)
    nodes = _NodeCapacity(offer, chosen, groups)
    cells = [nodes.cell(domain, scope) for domain, scope in sorted({(group.domain, group.scope) for group in groups})]
    for cell in cells:
        cell.repair()
        cell.arrive(request.spares)
    limits = _spare_counts(request, groups, chosen.spares)
    for cell in cells:
        cell.colocate(request.pod_gpus, limits)
    spares = _SpareSlots(offer, groups, _in_area(offer, request, groups, nodes.left))
    if request.may_spread:
        spares.overflow(limits)
    spares.separate()
    return groups


def _assigned_groups(offer: Capacity, request: Request, surviving: SurvivingPlan, chosen: Assignment) -> list[NewGroup]:
    """Return the groups where the assignment has them, with the pods that keep their slots."""
    places = offer.inventory.places
    found = []
    counts = Counter(chosen.whole)
    for member in (*surviving.untouched, *surviving.touched):
        if member in surviving.untouched or member.index in chosen.stays:
            nodes = Counter(dict(member.nodes))
            if member.index in chosen.stays:
                nodes = _keeping(offer, nodes, chosen.stays[member.index])
            key = member.domain, member.scope
            found.append(
                NewGroup(member.index, member.pods, *key, places[member.domain], nodes, member, list(member.spares))
            )
            counts[key] -= member.index != surviving.short
    staying = {group.index: group.domain for group in found}
    waiting = [index for index in surviving.open_numbers if index != surviving.short]
    coming = [key for key, count in sorted(counts.items()) for _ in range(count)]
    numbers = arrivals(offer.inventory, request, staying, waiting, [domain for domain, _ in coming])
    for index, (domain, scope) in zip(numbers, coming, strict=True):
        found.append(NewGroup(index, request.group_pods, domain, scope, places[domain], Counter()))
    if chosen.short and surviving.short not in staying:
        found.append(NewGroup(surviving.short, request.last_pods, *chosen.short, places[chosen.short[0]], Counter()))
    return sorted(found, key=lambda group: group.index)


def _keeping(offer: Capacity, nodes: Counter[str], kinds: Mapping[int, int]) -> Counter[str]:
    """Return the pods that keep their slots, of each kind of nodes no more than so many."""
    left = Counter(kinds)
    found: Counter[str] = Counter()
    for name, pods in sorted(nodes.items(), key=lambda item: (-item[1], item[0])):
        kind = offer.kind_of(name)
        if stay := min(pods, left[kind]):
            found[name] = stay
            left[kind] -= stay
    return found


def _spare_counts(request: Request, groups: Sequence[NewGroup], most: Mapping[int, int]) -> dict[int, int]:
    """Return how many spares each group has: those that stand first, then one for each that has the fewest."""
    left = Counter(most)
    found: dict[int, int] = {}
    for group in groups:
        found[group.index] = min(len(group.ready), request.spares, left[group.scope])
        left[group.scope] -= found[group.index]
    waiting = [(found[group.index], group.index, group.scope) for group in groups]
    heapify(waiting)
    while waiting:
        count, index, scope = heappop(waiting)
        if count < request.spares and left[scope]:
            left[scope] -= 1
            found[index] = count + 1
            heappush(waiting, (count + 1, index, scope))
    return found


def _in_area(offer: Capacity, request: Request, groups: Sequence[NewGroup], left: Mapping[str, int]) -> dict[str, int]:
    """Return the slots that are left for spares: no slots outside the area that the run stays in."""
    depth, area = request.depth, groups[0].place[: request.depth]
    return {node.name: left[node.name] if node.place[:depth] == area else 0 for node in offer.inventory.nodes}


class _NodeCapacity:
    """The slots that pods and spares leave on every node."""

    def __init__(self, offer: Capacity, chosen: Assignment, groups: Sequence[NewGroup]) -> None:
        self.offer = offer
        self.chosen = chosen
        self.groups = groups
        self.left: dict[str, int] = dict(zip(offer.inventory.numbers, offer.node_slots.tolist(), strict=True))
        self.ready: dict[str, list[NewGroup]] = {}
        self._splits: dict[int, dict[int, dict[str, int]]] = {}
        self._by_cell: dict[tuple[int, int], list[NewGroup]] = {}
        for group in groups:
            self._by_cell.setdefault((group.domain, group.scope), []).append(group)
            for name, pods in group.nodes.items():
                self.left[name] -= pods
            for spare in group.ready:
                self.ready.setdefault(spare.node, []).append(group)

    def cell(self, domain: int, scope: int) -> "_Cell":
        """Return the groups of a scope in a domain, and the slots that they may take there."""
        if domain not in self._splits:
            self._splits[domain] = self._split(domain)
        groups = self._by_cell[domain, scope]
        most = self.chosen.colocated.get((domain, scope)) if self.chosen.slots else None
        return _Cell(self, groups, self._splits[domain].get(scope, {}), most)

    def free(self, name: str) -> int:
        """Return the slots of a node without a pod or a spare."""
        return max(0, self.left[name] - len(self.ready.get(name, ())))

    def take(self, name: str, pods: int) -> None:
        """Take slots of a node; spares without slots there are dropped, the highest numbers first."""
        self.left[name] -= pods
        ready = self.ready.get(name, [])
        while len(ready) > max(0, self.left[name]):
            owner = max(ready, key=lambda group: group.index)
            ready.remove(owner)
            owner.take_spare(name)

    def _split(self, domain: int) -> dict[int, dict[str, int]]:
        """Return the slots of a domain that each scope may take beyond the pods that keep theirs."""
        by_kind: dict[int, list[str]] = {}
        for number in self.offer.inventory.in_domain(domain):
            by_kind.setdefault(int(self.offer.node_kinds[number]), []).append(self.offer.inventory.nodes[number].name)
        if not self.chosen.slots:
            return {0: {name: self.left[name] for name in by_kind.get(0, ())}}
        rest = {(kind, of): slots for (at, kind, of), slots in self.chosen.slots.items() if at == domain and slots}
        here = [group for group in self.groups if group.domain == domain]
        found: dict[int, dict[str, int]] = {scope: {} for _, scope in rest}
        # Where no other scope needs the slots, not even for spares that leave, a scope may take any of them.
        shared = max(Counter(kind for kind, _ in rest).values()) > 1 or (
            sum(self.chosen.colocated.values()) < sum(self.chosen.spares.values())
        )
        for kind in () if shared else by_kind:
            scopes = [scope for scope in found if kind >= 0 and scope in self.offer.kinds[kind]]
            if len(scopes) == 1:
                rest.setdefault((kind, scopes[0]), 0)
        for kind, names in by_kind.items():
            left = {name: self.left[name] for name in names}
            for scope in [scope for of, scope in sorted(rest) if of == kind]:
                pods = sum(group.nodes[name] for group in here if group.scope == scope for name in names)
                rest[kind, scope] = rest[kind, scope] - pods if shared else sum(left.values())
            fill = sorted(left, key=lambda name: (-left[name], name))
            # Spares keep their slots before any other slot is given to a scope.
            wants = [(group.scope, spare.node, 1) for group in here for spare in group.here()]
            wants += [(scope, name, left[name]) for of, scope in sorted(rest) if of == kind for name in fill]
            for scope, name, most in wants:
                if name in left and (kind, scope) in rest:
                    part = min(rest[kind, scope], left[name], most)
                    found[scope][name] = found[scope].get(name, 0) + part
                    left[name] -= part
                    rest[kind, scope] -= part
        return found


class _Cell:
    """The groups of one scope in one domain, and the slots for their pods and colocated spares."""

    def __init__(
        self, nodes: _NodeCapacity, groups: Sequence[NewGroup], slots: dict[str, int], most: int | None
    ) -> None:
        self._nodes = nodes
        self._groups = groups
        self._slots = slots
        self._most = most

    def repair(self) -> None:
        """Give the groups that stay nodes for the pods that they lost."""
        waiting = [group for group in self._groups if group.member and group.need]
        for group in waiting:
            for spare in group.here():
                self._from_spare(group, group, spare.node)
        for group in waiting:
            while group.need and (name := self._best(group)) is not None:
                self._assign(group, name, min(group.need, self._free(name)))
        for group in waiting:
            owners = {owner.index: owner for name in self._slots for owner in self._nodes.ready.get(name, ())}
            for index in sorted(owners, reverse=True):
                for spare in list(owners[index].ready):
                    self._from_spare(group, owners[index], spare.node)
            if group.need:
                raise AssertionError(f"group {group.index} stays in a domain that has too few slots for it")

    def arrive(self, spares: int) -> None:
        """Give the groups that come from elsewhere their nodes: free slots, then slots of spares."""
        coming = [group for group in self._groups if group.need]
        if not coming:
            return
        wanted = sum(group.need for group in coming)
        free = {name: self._free(name) for name in self._slots}
        slots = free if sum(free.values()) >= wanted else self._slots
        inventory, pod_gpus = self._nodes.offer.inventory, self._nodes.offer.pod_gpus
        seats = [
            NodeSlots(name, count, inventory.nodes[inventory.numbers[name]].free % pod_gpus)
            for name, count in sorted(slots.items())
            if count > 0
        ]
        ready = spares if sum(seat.slots for seat in seats) >= wanted + len(coming) * spares else 0
        layout = Layouts().lay_out(seats, [GroupDemand(group.need, ready) for group in coming])
        for group, seated in zip(coming, layout, strict=True):
            for name, pods in seated.pods:
                self._assign(group, name, pods)

    def colocate(self, pod_gpus: int, limits: Mapping[int, int]) -> None:
        """Place the spares that are in the domain of their group, so that as many groups as can be have all of theirs.

        Those of unchanged groups come first, then of those that want few. Spares keep their slots, and are on other
        nodes than their group where a slot is left there.
        """
        wanted = {
            group.index: max(0, limits[group.index] - len(group.ready) + len(group.here())) for group in self._groups
        }
        left = sum(self._slots.values()) if self._most is None else min(self._most, sum(self._slots.values()))
        counts: dict[int, int] = {}
        order = sorted(self._groups, key=lambda group: (group.changed, wanted[group.index], group.index))
        for group in order:
            counts[group.index] = min(wanted[group.index], left)
            left -= counts[group.index]
        for group in order:
            for spare in group.here():
                if counts[group.index] and not (group.changed and spare.node in group.nodes):
                    counts[group.index] -= self._ready(group, spare.node, pod_gpus)
        for group in order:
            for _ in range(counts[group.index]):
                free = [name for name, count in self._slots.items() if count > 0]
                self._ready(group, min(free, key=lambda name: self._order(group, name)), pod_gpus)

    def _order(self, group: NewGroup, name: str) -> tuple[object, ...]:
        """Return the order in which a spare takes nodes: apart from its group, where no spare stands, the tightest."""
        return name in group.nodes, self._nodes.free(name) <= 0, self._slots[name], name

    def _ready(self, group: NewGroup, name: str, pod_gpus: int) -> bool:
        """Place a spare on a node; return whether it has a slot there."""
        if self._slots.get(name, 0) <= 0:
            return False
        self._slots[name] -= 1
        self._nodes.left[name] -= 1
        group.spares.append(Spare(name, pod_gpus, group.place, Distance.DOMAIN))
        return True

    def _free(self, name: str) -> int:
        return min(self._slots[name], self._nodes.free(name))

    def _best(self, group: NewGroup) -> str | None:
        """Return the free node for more pods of a group: its own node, a node that they fill, else the tightest."""
        free = {name: count for name in self._slots if (count := self._free(name))}
        order = {
            name: (not group.nodes[name], count > group.need, count if count > group.need else -count, name)
            for name, count in free.items()
        }
        return min(order, key=order.__getitem__, default=None)

    def _from_spare(self, group: NewGroup, owner: NewGroup, name: str) -> None:
        """Let a pod take the slot of a spare, if the pod needs one and the slot is the scope's."""
        if group.need and self._slots.get(name, 0) > 0 and owner in self._nodes.ready.get(name, ()):
            owner.take_spare(name)
            self._nodes.ready[name].remove(owner)
            self._assign(group, name, 1)
            group.from_spares += 1

    def _assign(self, group: NewGroup, name: str, pods: int) -> None:
        group.nodes[name] += pods
        self._slots[name] -= pods
        self._nodes.take(name, pods)


class _SpareSlots:
    """The slots that pods and colocated spares leave on every node, and the groups whose spares take them."""

    def __init__(self, offer: Capacity, groups: Sequence[NewGroup], left: dict[str, int]) -> None:
        self.offer, self.groups, self.left = offer, groups, left

    def overflow(self, limits: Mapping[int, int]) -> None:
        """Place the spares that find no slot beside their group, as near as slots are left; those that stand stay."""
        current = [(group, spare) for group in self.groups for spare in group.ready if spare.place != group.place]
        lacking = {group.index: limits[group.index] - len(group.spares) for group in self.groups}
        # Where scopes overlap, a spare in place may have the only slot of another spare: then all are placed anew.
        if any(lacking.values()) and not self._assigned_around(current, lacking):
            self._assigned_around([], lacking)

    def _assigned_around(self, current: Sequence[tuple[NewGroup, Spare]], lacking: Mapping[int, int]) -> bool:
        """Place the spares beside some that stay; return whether all found a slot; change only these."""
        # 1. Spares that stand stay on their nodes, as many as each group lacks.
        left, rest = Counter(self.left), Counter(lacking)
        stays: list[tuple[NewGroup, Spare]] = []
        for group, spare in current:
            if rest[group.index] > 0 and left[spare.node] > 0:
                left[spare.node] -= 1
                rest[group.index] -= 1
                stays.append((group, spare))
        # 2. The others get domains, as near to their groups as slots are left.
        leaving = [group for group in self.groups for _ in range(rest[group.index])]
        departures = [Departure(*home, count) for home, count in Counter((g.domain, g.scope) for g in leaving).items()]
        slots = np.array([left[node.name] for node in self.offer.inventory.nodes], dtype=np.int64)
        offer = self.offer.with_node_slots(slots)
        placed = assign_guests(offer, {group.domain: {} for group in self.groups}, departures)
        if sum(guests.spares for some in placed for guests in some) < len(leaving):
            return False
        # 3. Each domain lays out the spares that it hosts, and every group takes its own.
        found = self._hosted(offer, departures, placed)
        for group, spare in (*stays, *((group, next(found[group.domain, group.scope])) for group in leaving)):
            group.spares.append(spare)
            self.left[spare.node] -= 1
        return True

    def _hosted(
        self, offer: Capacity, departures: Sequence[Departure], placed: Sequence[Sequence[Guests]]
    ) -> dict[tuple[int, int], Iterator[Spare]]:
        """Return the spares of each domain and scope that they leave, on their nodes."""
        nodes: dict[tuple[int, int], Iterator[str]] = {}
        guests = [(departure.scope, some) for departure, some in zip(departures, placed, strict=True)]
        for domain, demands in hosted_demands(guests).items():
            layout = Layouts().lay_out(free_nodes(offer, domain, frozenset(each.scope for each in demands)), demands)
            nodes |= {(domain, each.scope): iter(found.spares) for each, found in zip(demands, layout, strict=True)}
        return {
            (home, scope): iter(guest_spares(offer, scope, some, nodes))
            for (home, scope, _), some in zip(departures, placed, strict=True)
        }

    def separate(self) -> None:
        """Move spares of changed groups off the nodes of their pods: to a free slot, or to another spare's slot."""
        # Each change leaves fewer spares beside their group, and may make way for another one.
        while self._separated_some():
            pass

    def _separated_some(self) -> bool:
        by_place: dict[Location, list[tuple[NewGroup, int]]] = {}
        for group in self.groups:
            for at, spare in enumerate(group.spares):
                by_place.setdefault(spare.place, []).append((group, at))
        changed = False
        for group in self.groups:
            unmoved = group.member.spares if group.member and not group.changed else ()
            for at, spare in enumerate(group.spares):
                if spare.node in group.nodes and spare not in unmoved:
                    changed |= self._moved(group, at) or self._swapped(group, at, by_place[spare.place])
        return changed

    def _moved(self, group: NewGroup, at: int) -> bool:
        """Move a spare to a free slot of the domain away from the group's pods, if there is one."""
        inventory = self.offer.inventory
        for number in inventory.in_domain(group.domain):
            name = inventory.nodes[number].name
            if self.left[name] > 0 and name not in group.nodes and self._in_scope(group, name):
                self.left[group.spares[at].node] += 1
                self.left[name] -= 1
                group.spares[at] = replace(group.spares[at], node=name)
                return True
        return False

    def _swapped(self, group: NewGroup, at: int, others: Sequence[tuple[NewGroup, int]]) -> bool:
        """Exchange a spare's node with another spare's node, if fewer share a node with their group then."""
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
        kind = self.offer.kind_of(name)
        return kind >= 0 and group.scope in self.offer.kinds[kind]
