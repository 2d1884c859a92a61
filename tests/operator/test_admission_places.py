"""Who gives way when places or bytes are all taken."""

from dataclasses import dataclass

from gkm_operator.admission.places import Place, Places, Stage


@dataclass
class Guest:
    spoken: bool = False
    gone: bool = False

    def has_spoken(self) -> bool:
        return self.spoken

    def give_way(self) -> None:
        self.gone = True


def seat(places: Places, now: float, stage: Stage = Stage.UNDER_WAY, *, spoken: bool = False) -> tuple[Guest, Place]:
    guest = Guest(spoken)
    place = places.take(guest, now)
    assert place is not None
    place.enter(stage, now)
    return guest, place


def test_the_one_that_is_unfinished_for_longest_gives_way() -> None:
    places = Places(2, 100)
    (later, _), (earlier, _) = seat(places, 2.0), seat(places, 1.0)
    seat(places, 3.0)
    assert (earlier.gone, later.gone, len(places)) == (True, False, 2)


def test_idle_ones_give_way_first_and_of_them_the_one_that_was_idle_for_longest() -> None:
    places = Places(3, 100)
    under_way, _ = seat(places, 1.0)
    newer, _ = seat(places, 3.0, Stage.IDLE)
    older, _ = seat(places, 2.0, Stage.IDLE)
    seat(places, 4.0)
    assert (under_way.gone, newer.gone, older.gone) == (False, False, True)


def test_one_whose_request_has_just_come_is_not_idle() -> None:
    places = Places(2, 100)
    speaking, _ = seat(places, 1.0, Stage.IDLE, spoken=True)
    under_way, _ = seat(places, 2.0)
    seat(places, 3.0)
    places.end_idle()
    assert (speaking.gone, under_way.gone) == (False, True)


def test_when_all_are_judged_there_is_no_place() -> None:
    places = Places(1, 100)
    judged, place = seat(places, 1.0, Stage.JUDGED)
    assert places.take(Guest(), 2.0) is None
    places.leave(place)
    assert places.take(Guest(), 3.0) is not None
    assert not judged.gone


def test_the_one_that_holds_the_most_gives_way_unless_it_is_who_asks() -> None:
    places = Places(5, 100)
    large, held = seat(places, 1.0)
    small, other = seat(places, 2.0)
    assert places.hold(held, 70)
    assert not places.hold(other, 71)
    assert (places.size, large.gone, small.gone) == (70, False, False)
    assert places.hold(other, 40)
    assert (places.size, large.gone, small.gone) == (40, True, False)
    assert not places.hold(held, 1)
    places.leave(held)
    places.leave(other)
    assert places.size == 0


def test_what_is_judged_counts_and_stays() -> None:
    places = Places(5, 100)
    judged, held = seat(places, 1.0)
    assert places.hold(held, 90)
    held.enter(Stage.JUDGED, 2.0)
    _, other = seat(places, 3.0)
    assert not places.hold(other, 20)
    assert places.hold(other, 10)
    places.let_go(held)
    assert places.hold(other, 20)
    assert not judged.gone
