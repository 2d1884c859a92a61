"""Spares that must leave go as near as they can."""

from gkm.packing.nodes.spares import Leaving, Room, place_spares
from gkm.packing.values import Distance, Location

HOME = Location("r", "c1", "b1", "d1")
SCOPE = frozenset({0})


def room(name: str, place: Location, slots: int = 1, *, used: bool = False, scopes: frozenset[int] = SCOPE) -> Room:
    return Room(name, place, slots, used, scopes)


def test_a_level_is_left_only_when_it_is_full() -> None:
    rooms = [
        room("abroad", Location("q", "c1", "b1", "d1")),
        room("far", Location("r", "c2", "b1", "d1")),
        room("near", Location("r", "c1", "b1", "d2")),
        room("middle", Location("r", "c1", "b2", "d1")),
    ]
    placed = place_spares([Leaving(group, HOME, 0) for group in range(4)], rooms)
    assert placed is not None
    assert [(spare.node, spare.distance) for spare in placed] == [
        ("near", Distance.BLOCK),
        ("middle", Distance.CLUSTER),
        ("far", Distance.REGION),
        ("abroad", Distance.NONE),
    ]


def test_a_spare_that_finds_a_slot_in_its_block_is_served_before_one_that_comes_from_afar() -> None:
    elsewhere = Location("r", "c1", "b2", "d1")
    rooms = [room("mine", Location("r", "c1", "b1", "d2")), room("other", Location("r", "c2", "b9", "d9"))]
    placed = place_spares([Leaving(0, elsewhere, 0), Leaving(1, HOME, 0)], rooms)
    assert placed is not None
    assert [spare.node for spare in placed] == ["other", "mine"]


def test_what_is_left_in_used_domains_goes_first_then_the_node_with_the_fewest_slots() -> None:
    used, unused = Location("r", "c1", "b1", "d3"), Location("r", "c1", "b1", "d2")
    rooms = [room("large", used, 3, used=True), room("small", used, 1, used=True), room("unused", unused)]
    placed = place_spares([Leaving(0, HOME, 0), Leaving(1, HOME, 0)], rooms)
    assert placed is not None
    assert [spare.node for spare in placed] == ["small", "large"]


def test_a_spare_stays_in_the_scope_that_pays_for_its_group() -> None:
    near = Location("r", "c1", "b1", "d2")
    assert place_spares([Leaving(0, HOME, 1)], [room("other", near)]) is None
    placed = place_spares([Leaving(0, HOME, 1)], [room("other", near), room("own", near, scopes=frozenset({0, 1}))])
    assert placed is not None
    assert [spare.node for spare in placed] == ["own"]
