"""The token bucket and the minimum interval, by a clock of the test (test_kube_values.py has the backoff)."""

import pytest
from gkm.hoststate.pacing import Backoff, MinimumInterval, TokenBucket
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_grants_a_burst_and_then_one_token_an_interval() -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    assert [bucket.try_acquire() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 10.0
    assert [bucket.try_acquire() for _ in range(2)] == [True, False]
    clock.now += 9.5
    assert not bucket.try_acquire()


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    clock.now += 1e6
    assert [bucket.try_acquire() for _ in range(4)] == [True, True, True, False]


def test_reserved_tokens_come_one_after_the_other_and_the_past_does_not_count() -> None:
    clock = Clock()
    bucket = TokenBucket(1, 0.1, clock)
    assert [bucket.reserve() for _ in range(3)] == pytest.approx([0.0, 0.1, 0.2])
    clock.now += 100.0
    assert [bucket.reserve() for _ in range(2)] == pytest.approx([0.0, 0.1])


@given(st.integers(1, 5), st.lists(st.integers(0, 40), max_size=60))
def test_a_bucket_never_grants_more_than_burst_and_refill(burst: int, steps: list[int]) -> None:
    clock = Clock()
    bucket, granted = TokenBucket(burst, 8.0, clock), 0
    for step in steps:
        clock.now += step
        granted += bucket.try_acquire()
        assert granted <= burst + (clock.now - Clock.now) / 8.0


def test_each_key_has_an_interval_of_its_own() -> None:
    clock = Clock()
    interval: MinimumInterval[str] = MinimumInterval(30.0, clock)
    assert interval.has_passed("a")
    interval.record("a")
    assert (interval.has_passed("a"), interval.has_passed("b")) == (False, True)
    clock.now += 29.0
    assert not interval.has_passed("a")
    clock.now += 1.0
    assert interval.has_passed("a")


def test_a_key_that_is_not_retained_is_forgotten() -> None:
    interval: MinimumInterval[str] = MinimumInterval(30.0, Clock())
    interval.record("a")
    interval.record("b")
    interval.retain_only({"b"})
    assert (interval.has_passed("a"), interval.has_passed("b")) == (True, False)


def test_the_longest_pause_doubles_up_to_the_cap() -> None:
    backoff = Backoff(5.0, 600.0)
    assert [backoff.longest_pause(failures) for failures in (0, 1, 2, 3, 8, 10_000)] == [5, 5, 10, 20, 600, 600]
