"""Who gives way when places or bytes are all taken, and warnings about clients, which do not fill the disk."""

import logging
from dataclasses import dataclass

import pytest
from gkm_operator.admission.https.connection_limits import (
    SECONDS,
    SLOW_SECONDS,
    ConnectionLimiter,
    ConnectionSlot,
    SessionStage,
    ThrottledLog,
)


@dataclass
class Guest:
    spoken: bool = False
    gone: bool = False

    def has_pending_data(self) -> bool:
        return self.spoken

    def evict(self) -> None:
        self.gone = True


def seat(
    places: ConnectionLimiter, now: float, stage: SessionStage = SessionStage.ACTIVE, *, spoken: bool = False
) -> tuple[Guest, ConnectionSlot]:
    guest = Guest(spoken)
    slot = places.acquire(guest, now)
    assert slot is not None
    slot.enter(stage, now)
    return guest, slot


def test_the_longest_unfinished_session_is_evicted() -> None:
    places = ConnectionLimiter(2, 100)
    (later, _), (earlier, _) = seat(places, 2.0), seat(places, 1.0)
    seat(places, 3.0)
    assert (earlier.gone, later.gone, len(places._slots)) == (True, False, 2)


def test_a_slow_session_is_evicted_before_an_idle_one() -> None:
    places = ConnectionLimiter(3, 100)
    idle, _ = seat(places, 1.0, SessionStage.IDLE)
    slower, _ = seat(places, 2.0)
    slow, _ = seat(places, 2.1)
    seat(places, 2.2 + SLOW_SECONDS)
    assert (idle.gone, slower.gone, slow.gone) == (False, True, False)


def test_idle_sessions_are_evicted_before_one_that_is_not_slow_by_idle_time() -> None:
    places = ConnectionLimiter(3, 100)
    under_way, _ = seat(places, 4.0 - SLOW_SECONDS)
    newer, _ = seat(places, 3.0, SessionStage.IDLE)
    older, _ = seat(places, 2.0, SessionStage.IDLE)
    seat(places, 4.0)
    assert (under_way.gone, newer.gone, older.gone) == (False, False, True)


def test_a_session_with_an_unread_request_is_not_idle() -> None:
    places = ConnectionLimiter(2, 100)
    speaking, _ = seat(places, 1.0, SessionStage.IDLE, spoken=True)
    under_way, _ = seat(places, 2.0)
    seat(places, 3.0)
    places.evict_idle()
    assert (speaking.gone, under_way.gone) == (False, True)


def test_no_slot_is_free_when_all_requests_are_in_review() -> None:
    places = ConnectionLimiter(1, 100)
    judged, slot = seat(places, 1.0, SessionStage.IN_REVIEW)
    assert places.acquire(Guest(), 2.0) is None
    places.release(slot)
    assert places.acquire(Guest(), 3.0) is not None
    assert not judged.gone


def test_the_largest_session_is_evicted_unless_it_asks_for_bytes_itself() -> None:
    places = ConnectionLimiter(5, 100)
    large, held = seat(places, 1.0)
    small, other = seat(places, 2.0)
    assert places.reserve_bytes(held, 70)
    assert not places.reserve_bytes(other, 71)
    assert (places.size, large.gone, small.gone) == (70, False, False)
    assert places.reserve_bytes(other, 40)
    assert (places.size, large.gone, small.gone) == (40, True, False)
    assert not places.reserve_bytes(held, 1)
    places.release(held)
    places.release(other)
    assert places.size == 0


def test_a_request_in_review_counts_and_is_not_evicted() -> None:
    places = ConnectionLimiter(5, 100)
    judged, held = seat(places, 1.0)
    assert places.reserve_bytes(held, 90)
    held.enter(SessionStage.IN_REVIEW, 2.0)
    _, other = seat(places, 3.0)
    assert not places.reserve_bytes(other, 20)
    assert places.reserve_bytes(other, 10)
    places.release_bytes(held)
    assert places.reserve_bytes(other, 20)
    assert not judged.gone


def test_an_event_is_logged_once_per_interval_with_the_suppressed_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = ThrottledLog(logging.getLogger("a test"), lambda: now[0])
    for number in range(5):
        log.warning("too slow", peer=str(number))
    log.warning("no TLS", peer="x")
    now[0] = SECONDS - 0.1
    log.warning("too slow", peer="8")
    now[0] = SECONDS
    log.warning("too slow", peer="9")
    said = [(record.message, vars(record)["peer"], vars(record).get("suppressed")) for record in caplog.records]
    assert said == [("too slow", "0", None), ("no TLS", "x", None), ("too slow", "9", 5)]
