"""Spares after a loss: those that stand stay, what is missing is made again, as near as there is room (calculus.md)."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.nodes.spares import Leaving, Placed, Room, place_spares
from gkm.packing.replanning.lacking import Guarded, filled, limits, most_spares
from gkm.packing.replanning.seating import Seated
from gkm.packing.values import Distance, Location, Request, Spare

MAX_LACKING = 100_000
"""Spares without room whose nearness is compared. Of more, those of the groups that have the fewest are looked at."""
_BEYOND = Location(*4 * (chr(sys.maxunicode),))
"""Comes after every place and shares nothing with any."""


def spares_again(offer: Capacity, request: Request, groups: Sequence[Guarded]) -> bool:
    """Give all groups the spares they should have, as far as there is room. Return False where dealing got stuck.

    In its domain a group's spares come before those of groups of other domains. Where spares must leave, they are
    those of as few groups as can be: of groups that are placed anew first.
    """
    room = _Nodes(offer, groups)
    most = most_spares(offer, request, groups)
    counts = limits(request, groups, most)
    by_domain: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        by_domain.setdefault(group.seated.domain, []).append(number)
    for domain in sorted(by_domain):
        here = by_domain[domain]
        _at_home(room, request, domain, [groups[number] for number in here], [counts[number] for number in here])
    for group, count in zip(groups, counts, strict=True):
        for spare in group.stood:
            if spare.place != group.place and room.left[spare.node] > 0 and len(group.spares) < count:
                room.left[spare.node] -= 1
                group.spares.append(spare)
    for group, count in zip(groups, counts, strict=True):
        # A spare that stood elsewhere and had to make room there may find room at home.
        while len(group.spares) < count and (name := room.nearby(group.seated)) is not None:
            room.left[name] -= 1
            group.spares.append(Spare(name, request.pod_gpus, group.place, Distance.DOMAIN))
    for far in _placed(room, _leaving(request, groups, counts, most), set(by_domain)):
        groups[far.group].spares.append(Spare(far.node, request.pod_gpus, far.place, far.distance))
    return sum(len(group.spares) for group in groups) == sum(most.values())


def _leaving(
    request: Request, groups: Sequence[Guarded], most_each: Sequence[int], most: Counter[int]
) -> list[tuple[int, Leaving]]:
    """Return the spares that find no room at home, after how many others of their group each comes."""
    here = [len(group.spares) for group in groups]
    if not request.may_spread:
        return []
    wanted = most_each
    if sum(most_each) - sum(here) > max(MAX_LACKING, sum(most.values())):
        wanted = filled(groups, here, most_each, most)
    return [
        (before, Leaving(number, groups[number].place, groups[number].seated.scope))
        for number, count in enumerate(wanted)
        for before in range(here[number], count)
    ]


def _placed(room: "_Nodes", leaving: Sequence[tuple[int, Leaving]], used: set[int]) -> list[Placed]:
    """Return places for the spares that find one. Most find it in their block."""
    if not leaving:
        return []
    wanted = [spare for _, spare in leaving]
    near = place_spares(wanted, room.rooms(used, {spare.place[:3] for spare in wanted}))
    if near is not None and all(spare.distance is Distance.BLOCK for spare in near):
        return near
    rooms = list(room.rooms(used, None))
    found = place_spares(wanted, rooms)
    if found is None:
        # Some are lacking: then who has the fewest comes first, and who is left over finds room beyond all places.
        wanted = [spare for _, spare in sorted(leaving)]
        beyond = Room("", _BEYOND, len(wanted), used=False, scopes=frozenset(spare.scope for spare in wanted))
        found = [spare for spare in place_spares(wanted, [*rooms, beyond]) or () if spare.place != _BEYOND]
    return found


class _Nodes:
    """The slots that pods leave on every node."""

    def __init__(self, offer: Capacity, groups: Sequence[Guarded]) -> None:
        self._offer = offer
        nodes, slots = offer.inventory.nodes, offer.node_slots.tolist()
        self.left = {node.name: count for node, count in zip(nodes, slots, strict=True)}
        for group in groups:
            for name, pods in group.seated.nodes.items():
                self.left[name] -= pods

    def of(self, domain: int) -> dict[str, frozenset[int]]:
        """Return the nodes of a domain that have slots left, with the scopes that take them."""
        return {
            self._offer.inventory.nodes[number].name: self._offer.kinds[int(self._offer.node_kinds[number])]
            for number in self._offer.inventory.in_domain(domain)
            if self.left[self._offer.inventory.nodes[number].name] > 0
        }

    def nearby(self, seated: Seated) -> str | None:
        """Return a node of a group's domain and scope with a slot left, apart from the group if it can be."""
        here = [name for name, scopes in self.of(seated.domain).items() if seated.scope in scopes]
        return min(here, key=lambda name: (name in seated.nodes, self.left[name], name), default=None)

    def rooms(self, used: set[int], blocks: set[tuple[str, ...]] | None) -> Iterator[Room]:
        """Yield the nodes that have slots left, of some blocks or of all."""
        for domain, place in enumerate(self._offer.inventory.places):
            if blocks is None or place[:3] in blocks:
                for name, scopes in self.of(domain).items():
                    yield Room(name, place, self.left[name], domain in used, scopes)


def _at_home(room: _Nodes, request: Request, domain: int, groups: Sequence[Guarded], most_each: Sequence[int]) -> None:
    """Place the spares that stay in a domain, of each group no more than its limit."""
    wanted = {
        number: max(0, most_each[number] - sum(spare.place != group.place for spare in group.stood))
        for number, group in enumerate(groups)
    }
    complete = all(len(group.here()) == wanted[number] for number, group in enumerate(groups))
    beside = any(group.changed and spare.node in group.seated.nodes for group in groups for spare in group.here())
    stood = Counter(spare.node for group in groups for spare in group.here())
    if complete and not beside and all(room.left[name] >= count for name, count in stood.items()):
        for group in groups:
            group.spares += group.here()
        room.left.update({name: room.left[name] - count for name, count in stood.items()})
        return
    # As many groups as can be have all of theirs: those that were here, who asks for little before who asks for much.
    order = sorted(wanted, key=lambda number: (groups[number].changed, wanted[number], groups[number].seated.index))
    scopes = room.of(domain)
    counts = _counts(room, groups, wanted, order, scopes)
    for number, nodes in _apart(room, groups, counts, order, scopes).items():
        group = groups[number]
        for name in nodes:
            room.left[name] -= 1
        again = Counter(nodes)
        for spare in group.here():
            if again[spare.node]:
                again[spare.node] -= 1
                group.spares.append(spare)
        group.spares += [
            Spare(name, request.pod_gpus, group.place, Distance.DOMAIN) for name in sorted(again.elements())
        ]


def _counts(
    room: _Nodes,
    groups: Sequence[Guarded],
    wanted: Mapping[int, int],
    order: Sequence[int],
    scopes: Mapping[str, frozenset[int]],
) -> dict[int, int]:
    """Return how many spares of each group stay."""
    deal: Deal[int, str] = Deal(
        {name: room.left[name] for name in scopes},
        lambda number, name: (name,) if groups[number].seated.scope in scopes[name] else None,
    )
    slots = sum(deal.free.values())
    return {number: sum(deal.give(number, 1) for _ in range(min(wanted[number], slots))) for number in order}


def _apart(
    room: _Nodes,
    groups: Sequence[Guarded],
    counts: Mapping[int, int],
    order: Sequence[int],
    scopes: Mapping[str, frozenset[int]],
) -> dict[int, list[str]]:
    """Return nodes for the spares that stay: where they stood, else apart from their groups as far as that can be."""
    slots: Counter[tuple[str, int]] = Counter()
    for name in scopes:
        stood = [number for number in order for spare in groups[number].here() if spare.node == name]
        for number in stood[: room.left[name]]:
            slots[name, number] += 1
        slots[name, -1] = room.left[name] - min(len(stood), room.left[name])

    def gladly(want: tuple[int, bool], slot: tuple[str, int]) -> tuple[object, ...] | None:
        (number, anywhere), (name, owner) = want, slot
        group = groups[number]
        beside = name in group.seated.nodes
        stands = owner == number and not (beside and group.changed)
        if group.seated.scope not in scopes[name] or (beside and not anywhere and not stands):
            return None
        return 0 if stands else 1 if owner < 0 else 2, beside, room.left[name], name

    deal: Deal[tuple[int, bool], tuple[str, int]] = Deal(slots, gladly)
    lacking = {number: sum(not deal.give((number, False), 1) for _ in range(counts[number])) for number in order}
    for number, count in lacking.items():
        deal.give((number, True), count)
    found: dict[int, list[str]] = {number: [] for number in order}
    for ((number, _), (name, _)), count in deal.given.items():
        found[number] += [name] * count
    return found
