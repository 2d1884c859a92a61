"""The rate of status writes of one cache, and the Events that a new leader emits for its predecessor."""

from datetime import UTC, datetime, timedelta

import pytest
from gkm.api.caches import CacheStatus, GKMCache
from gkm.api.meta import Condition, timestamp
from gkm_operator.caches.status import events_of, missed_events
from gkm_operator.caches.throttling import FIRST_SECONDS, LONGEST_SECONDS, StatusInterval
from gkm_operator.caches.totals import CacheKey
from msgspec import convert, structs
from support.operator.deployment import cache

KEY, OTHER = CacheKey("a", "x"), CacheKey("a", "y")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_quiet_cache_is_written_soon_and_a_busy_one_with_growing_intervals() -> None:
    clock = Clock()
    spacing = StatusInterval(clock=clock)
    waited = []
    for _ in range(6):
        waited.append(spacing.after(KEY))
        clock.now += waited[-1]
        spacing.wrote(KEY)
    assert waited == [FIRST_SECONDS, 1.0, 2.0, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
    assert spacing.after(OTHER) == FIRST_SECONDS
    clock.now += 3 * LONGEST_SECONDS
    assert spacing.after(KEY) == FIRST_SECONDS
    spacing.wrote(KEY)
    clock.now += FIRST_SECONDS
    assert spacing.after(KEY) == FIRST_SECONDS


def test_no_more_caches_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm_operator.caches.throttling._REMEMBERED", 3)
    spacing = StatusInterval()
    for number in range(10):
        spacing.wrote(CacheKey("a", str(number)))
    assert [key.name for key, _ in spacing._written.items()] == ["7", "8", "9"]


def condition(kind: str, status: str, reason: str, seconds: int) -> Condition:
    return Condition(kind, status, reason, "words", timestamp(NOW + timedelta(seconds=seconds)))


def written(*conditions: Condition) -> GKMCache:
    made = convert(cache("x", "registry.test/x:1", "a", uid="u"), GKMCache)
    return structs.replace(made, status=CacheStatus(conditions=list(conditions), last_updated=timestamp(NOW)))


FAILURES = condition("Error", "True", "NodeFailuresPresent", 0)
NO_FAILURES = condition("Error", "False", "NoFailures", 0)
VERIFIED, LONG_VERIFIED = (condition("Verified", "True", "CosignSuccess", seconds) for seconds in (0, -600))


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ((VERIFIED, condition("Ready", "False", "NoMatchingNodes", 0)), ["CosignSuccess"]),
        ((VERIFIED, condition("Ready", "True", "AllNodesReady", 0)), ["CosignSuccess", "AllNodesReady"]),
        ((LONG_VERIFIED, condition("Ready", "True", "AllNodesReady", 0)), ["AllNodesReady"]),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesPending", 0)), ["NodesPending"]),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesPending", -600)), []),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesIncompatible", -600), FAILURES), ["NodesIncompatible"]),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesFailed", 0), FAILURES), ["NodesFailed"]),
        ((VERIFIED, condition("Ready", "False", "NodesFailed", 0), FAILURES), ["CosignSuccess", "NodesFailed"]),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesPending", -600), FAILURES), ["NodeFailuresPresent"]),
        ((LONG_VERIFIED, condition("Ready", "False", "NodesPending", -600), NO_FAILURES), []),
        ((), []),
    ],
)
def test_a_new_leader_emits_the_events_of_its_predecessors_last_write(
    conditions: tuple[Condition, ...], told: list[str]
) -> None:
    found = missed_events(written(*conditions), NOW + timedelta(seconds=20))
    assert [news.reason for news in found] == told


@pytest.mark.parametrize("later", [timedelta(minutes=3), timedelta(minutes=-2)])
def test_an_old_write_causes_no_events(later: timedelta) -> None:
    assert not list(missed_events(written(VERIFIED), NOW + later))


def test_repeated_events_equal_the_original_ones() -> None:
    before = CacheStatus()
    after = written(VERIFIED, condition("Ready", "True", "AllNodesReady", 0))
    assert list(missed_events(after, NOW)) == list(events_of(before, after.status))
