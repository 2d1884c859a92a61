"""Leader election: the rules, and a candidate on an API in memory with a fake clock."""

import time
from datetime import timedelta
from threading import Event

import pytest
from gkm.api.meta import ObjectMeta
from gkm.kube.elector import boottime_seconds
from gkm.kube.errors import ApiError, from_body
from gkm.kube.leases import Lease, LeaseSpec, ObservedLease, can_acquire, renewed_spec
from support.kube.lease_scene import MOMENT, TERMS, Scene


def observed(holder: str | None, *, at: float = 0, duration: int | None = 15) -> ObservedLease:
    return ObservedLease(Lease(ObjectMeta(name="l"), LeaseSpec(holder, duration)), at)


@pytest.mark.parametrize(
    ("record", "now", "may"),
    [
        (observed("me"), 0, True),
        (observed("me"), 1000, True),
        (observed("other"), 14.9, False),
        (observed("other"), 15, True),
        (observed("other", at=100), 110, False),
        (observed("other", duration=60), 59, False),
        (observed("other", duration=60), 60, True),
        (observed("other", duration=1), 14, False),
        (observed(""), 0, True),
        (observed(None), 0, True),
        (observed(None, duration=None), 0, True),
    ],
)
def test_a_candidate_may_acquire_a_free_own_or_expired_lease(record: ObservedLease, now: float, may: bool) -> None:  # noqa: FBT001 -- a parameter
    assert can_acquire(record, "me", now, TERMS) is may


def test_a_transition_is_counted_and_a_renewal_keeps_the_acquire_time() -> None:
    first = renewed_spec(LeaseSpec(), "a", TERMS, MOMENT)
    assert first == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-21T12:30:15.000005Z",
        "renewTime": "2026-11-21T12:30:15.000005Z",
        "leaseTransitions": 0,
    }
    old = LeaseSpec("a", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:09.000000Z", 3)
    assert renewed_spec(old, "a", TERMS, MOMENT)["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert renewed_spec(old, "a", TERMS, MOMENT)["leaseTransitions"] == 3
    assert renewed_spec(old, "b", TERMS, MOMENT)["leaseTransitions"] == 4
    assert renewed_spec(old, "b", TERMS, MOMENT)["acquireTime"] == "2026-11-21T12:30:15.000005Z"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_leads_and_the_second_waits(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    assert one.try_acquire_or_renew()
    assert not two.try_acquire_or_renew()
    assert (one.is_leader, two.is_leader) == (True, False)
    assert scene.spec().holder_identity == "one"


def test_a_killed_leader_is_replaced_when_its_lease_expires(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    scene.now = 14.9
    assert not two.try_acquire_or_renew()
    scene.now = 15.1
    assert two.try_acquire_or_renew()
    assert scene.spec().lease_transitions == 1


def test_a_candidate_tries_at_the_moment_the_lease_expires(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    assert not two.try_acquire_or_renew()
    assert TERMS.retry <= two._pause() <= 1.2 * TERMS.retry
    scene.now = 14.5
    assert two._pause() == 0.5
    scene.now += two._pause()
    assert two.try_acquire_or_renew()


def test_a_lease_counts_from_its_observed_change_not_from_its_times(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    scene.now = 1000.0
    assert not two.try_acquire_or_renew()  # it has never seen this lease before
    scene.now = 1014.0
    one.try_acquire_or_renew()
    scene.now = 1016.0
    assert not two.try_acquire_or_renew()


def test_a_leader_that_cannot_renew_stops_before_another_may_lead(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    scene.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    led = []
    for scene.now in (9.9, 10.0):
        assert not one.try_acquire_or_renew()
        led.append(one.is_leader)
    assert led == [True, False]
    scene.api.fault = lambda _verb, _plural: None
    assert not two.try_acquire_or_renew()
    scene.now = 15.0
    assert two.try_acquire_or_renew()


def test_a_renewal_counts_from_before_a_slow_response(scene: Scene) -> None:
    one = scene.candidate("one")

    def slow(_verb: str, _plural: str) -> None:
        scene.now += 4.0

    scene.api.fault = slow
    assert one.try_acquire_or_renew()
    scene.api.fault = lambda _verb, _plural: None
    scene.now = 10.0
    assert not one.is_leader


def test_a_released_lease_is_acquired_at_once(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    one.release()
    assert not one.is_leader
    assert scene.spec().holder_identity == ""
    assert two.try_acquire_or_renew()


def test_a_candidate_without_the_lease_releases_nothing(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    two.release()
    assert scene.spec().holder_identity == "one"


def test_of_two_concurrent_candidates_one_acquires_the_lease(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    one.release()
    real = scene.api.merge
    raced: list[bool] = []

    def merge(*arguments: object, **named: object) -> object:
        if not raced:
            raced.append(True)
            assert one.try_acquire_or_renew()
        return real(*arguments, **named)  # type: ignore[arg-type]

    scene.api.merge = merge  # type: ignore[assignment,method-assign]
    assert not two.try_acquire_or_renew()
    assert scene.spec().holder_identity == "one"


def test_a_restarted_holder_keeps_its_lease(scene: Scene) -> None:
    scene.candidate("one").try_acquire_or_renew()
    again = scene.candidate("one")
    assert again.try_acquire_or_renew()
    assert scene.spec().lease_transitions == 0


def test_a_candidate_stopped_while_it_waits_never_leads(scene: Scene) -> None:
    scene.candidate("one").try_acquire_or_renew()
    stop = Event()
    stop.set()
    assert not scene.candidate("two").acquire(stop)


def test_the_lease_of_another_counts_from_after_the_response(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()

    def slow(verb: str, _plural: str) -> None:
        if verb == "get":
            scene.now += 4.0

    scene.api.fault = slow
    assert not two.try_acquire_or_renew()  # the answer, of second 4, may hold what was renewed in that second
    scene.api.fault = lambda _verb, _plural: None
    scene.now = 18.9
    assert not two.try_acquire_or_renew()
    scene.now = 19.0
    assert two.try_acquire_or_renew()


@pytest.mark.parametrize("jump", [timedelta(days=-4000), timedelta(hours=-1), timedelta(hours=1), timedelta(days=4000)])
def test_a_jump_of_the_time_of_day_does_not_change_the_leader(scene: Scene, jump: timedelta) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    scene.day = jump
    assert not two.try_acquire_or_renew()
    assert one.is_leader
    scene.now = 9.0
    assert one.try_acquire_or_renew()
    scene.day = timedelta()
    scene.now = 16.0
    assert not two.try_acquire_or_renew()
    assert one.is_leader
    assert scene.spec().lease_transitions == 0


def test_a_process_stopped_for_longer_than_its_lease_does_not_lead_afterwards(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    scene.now = 15.0  # one was stopped all the while
    assert two.try_acquire_or_renew()
    assert (one.is_leader, two.is_leader) == (False, True)
    assert not one.try_acquire_or_renew()
    one.release()
    assert scene.spec().holder_identity == "two"


def test_a_process_stopped_while_it_renews_takes_nothing_from_its_successor(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    stopped: list[str] = []

    def stop(verb: str, _plural: str) -> None:
        if verb == "merge" and not stopped:
            stopped.append(verb)
            scene.now = 15.0
            assert two.try_acquire_or_renew()

    scene.api.fault = stop
    scene.now = 2.0
    assert not one.try_acquire_or_renew()
    assert (one.is_leader, two.is_leader) == (False, True)
    assert scene.spec().holder_identity == "two"


def test_a_stopped_process_without_successor_leads_again_after_a_renewal(scene: Scene) -> None:
    one = scene.candidate("one")
    one.try_acquire_or_renew()
    scene.now = 3600.0
    led = [one.is_leader, one.try_acquire_or_renew(), one.is_leader]
    assert led == [False, True, True]
    assert scene.spec().lease_transitions == 0


def test_a_lease_expires_while_the_machine_is_suspended() -> None:
    """CLOCK_BOOTTIME is CLOCK_MONOTONIC and the time that was slept."""
    least = time.monotonic()
    assert boottime_seconds() >= least


@pytest.mark.parametrize("asked", ["\u00b2", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_no_response_ends_the_renewing_thread(scene: Scene, asked: str) -> None:
    one = scene.candidate("one")
    one.try_acquire_or_renew()
    scene.api.fault = lambda _verb, _plural: from_body(429, b"", asked)
    assert not one.try_acquire_or_renew()
    assert one.is_leader
