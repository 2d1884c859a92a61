"""Spares after a loss: those that stand stay, what is missing is made again, as near as there is room (calculus.md)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.nodes.spares import Leaving, Placed, Room, place_spares
from gkm.packing.replanning.seating import Seated
from gkm.packing.values import Distance, Place, Request, Spare


@dataclass(slots=True)
class Guarded:
    """A group where it is now, and the spares that stood ready for it and those that do.

    `changed` says that pods of it moved: then a spare may be beside it that was apart before.
    """

    seated: Seated
    place: Place
    changed: bool
    stood: tuple[Spare, ...]
    spares: list[Spare] = field(default_factory=list)

    def here(self) -> list[Spare]:
        """Return the spares that stood in the domain of the group."""
        return [spare for spare in self.stood if spare.place == self.place]


def spares_again(offer: Capacity, request: Request, groups: Sequence[Guarded]) -> bool:
    """Give all groups the spares they should have. Return False where some find no slot within their scope.

    In its domain a group's spares come before those of groups of other domains. Where spares must leave, they are
    those of as few groups as can be: of groups that are placed anew first.
    """
    room = _Nodes(offer, groups)
    by_domain: dict[int, list[Guarded]] = {}
    for group in groups:
        by_domain.setdefault(group.seated.domain, []).append(group)
    for domain in sorted(by_domain):
        _at_home(room, request, domain, by_domain[domain])
    for group in groups:
        for spare in group.stood:
            if spare.place != group.place and room.left[spare.node] > 0:
                room.left[spare.node] -= 1
                group.spares.append(spare)
    for group in groups:
        # A spare that stood elsewhere and had to make room there may find room at home.
        while len(group.spares) < request.spares and (name := room.nearby(group.seated)) is not None:
            room.left[name] -= 1
            group.spares.append(Spare(name, request.pod_gpus, group.place, Distance.DOMAIN))
    leaving = [
        Leaving(number, group.place, group.seated.scope)
        for number, group in enumerate(groups)
        for _ in range(request.spares - len(group.spares))
    ]
    placed = _placed(room, leaving, set(by_domain))
    if placed is None:
        return False
    for far in placed:
        groups[far.group].spares.append(Spare(far.node, request.pod_gpus, far.place, far.distance))
    return True


def _placed(room: "_Nodes", leaving: Sequence[Leaving], used: set[int]) -> list[Placed] | None:
    """Return a place for every spare; None if there are too few slots. Most find one in their block."""
    if not leaving:
        return []
    near = place_spares(leaving, room.rooms(used, {spare.place[:3] for spare in leaving}))
    if near is not None and all(spare.distance is Distance.BLOCK for spare in near):
        return near
    return place_spares(leaving, room.rooms(used, None))


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


def _at_home(room: _Nodes, request: Request, domain: int, groups: Sequence[Guarded]) -> None:
    """Place the spares that stay in a domain."""
    wanted = {
        number: request.spares - sum(spare.place != group.place for spare in group.stood)
        for number, group in enumerate(groups)
    }
    complete = all(len(group.here()) == wanted[number] for number, group in enumerate(groups))
    stood = Counter(spare.node for group in groups for spare in group.here())
    if complete and all(room.left[name] >= count for name, count in stood.items()):
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
    return {number: sum(deal.give(number, 1) for _ in range(wanted[number])) for number in order}


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
