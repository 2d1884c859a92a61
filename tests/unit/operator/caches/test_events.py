"""The Events of a cache, from the difference of two statuses."""

from datetime import datetime
from typing import Any

import pytest
from gkm.api.caches import CacheStatus
from gkm.api.meta import Condition
from gkm_operator.caches.status import ConditionValue, desired_status, events_of, missed_events, regarding
from gkm_operator.caches.totals import CacheSummary
from msgspec import structs
from support.operator.statuses import FULL, NOBODY, THEN, UNFIT, cache, settled


def of_nodes(**counts: Any) -> CacheStatus:  # noqa: ANN401 -- as Summary takes them
    return settled(CacheSummary(**counts))


PENDING = {"total": 2}
ONE_UNFIT = {"total": 2, "incompatible": 1, "misfits": UNFIT}
ALL_UNFIT = {"total": 2, "incompatible": 2, "misfits": UNFIT}
ONE_FAILED = {"total": 2, "ready": 1, "failed": 1, "failures": FULL}


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (None, ALL_UNFIT, ["NodesIncompatible"]),
        (PENDING, ALL_UNFIT, ["NodesIncompatible"]),
        (PENDING, ONE_UNFIT, []),
        (ALL_UNFIT, ONE_FAILED | ALL_UNFIT | {"total": 4}, ["NodesFailed"]),
        (ONE_UNFIT, ALL_UNFIT, ["NodesIncompatible"]),
        (PENDING, ONE_FAILED, ["NodesFailed"]),
        ({"total": 2, "ready": 2}, ONE_FAILED, ["NodesFailed"]),
        (ALL_UNFIT, ALL_UNFIT, []),
        (ALL_UNFIT, ALL_UNFIT | {"total": 3, "incompatible": 3}, []),
        (ALL_UNFIT, PENDING, []),
    ],
)
def test_failing_nodes_are_reported_once_as_a_warning(
    before: dict[str, Any] | None, after: dict[str, Any], news: list[str]
) -> None:
    old = of_nodes(**before) if before is not None else structs.replace(settled(), conditions=settled().conditions[2:])
    said = list(events_of(old, of_nodes(**after)))
    assert [one.reason for one in said] == news
    assert {one.kind for one in said} <= {"Warning"}
    assert all("ArchitectureMismatch" in one.note or "DiskFull" in one.note for one in said)


def test_pods_without_the_cache_are_reported_once() -> None:
    one = ALL_UNFIT | {"unserved": 1, "unserved_named": ("n1",)}
    two = ALL_UNFIT | {"unserved": 2, "unserved_named": ("n1", "n2")}
    found = list(events_of(of_nodes(**ALL_UNFIT), of_nodes(**one)))
    assert [(each.kind, each.reason) for each in found] == [("Warning", "NoCacheForHardware")]
    assert "n1" in found[0].note
    assert not list(events_of(of_nodes(**one), of_nodes(**two)))
    written = structs.replace(of_nodes(**one), last_updated=THEN)
    moment = datetime.fromisoformat(THEN)
    assert "NoCacheForHardware" in [each.reason for each in missed_events(cache(written), moment)]


def test_a_generation_that_is_held_back_is_reported_once() -> None:
    def judged(status: str, message: str = "4 of 4 pods") -> CacheStatus:
        found = desired_status(cache(settled()), None, NOBODY, THEN, further=[verdict(status, message)])
        return found or settled()

    def verdict(status: str, message: str) -> ConditionValue:
        return ConditionValue("HeldBack", status, "PodsFailed", message)

    # The object of a generation that never was held back says nothing about it.
    assert judged("False").condition("HeldBack") is None
    found = list(events_of(settled(), judged("True")))
    assert [(each.kind, each.reason, each.note) for each in found] == [("Warning", "HeldBack", "4 of 4 pods")]
    assert not list(events_of(judged("True"), judged("True", "5 of 5 pods")))
    written = structs.replace(judged("True"), last_updated=THEN)
    assert "HeldBack" in [each.reason for each in missed_events(cache(written), datetime.fromisoformat(THEN))]


def shows(status: str, reason: str, message: str = "message") -> CacheStatus:
    return CacheStatus(conditions=[Condition("Verified", status, reason, message, THEN)])


def test_only_a_changed_verdict_is_reported() -> None:
    good, bad = shows("True", "CosignSuccess"), shows("False", "SignatureInvalid")
    assert not list(events_of(CacheStatus(), CacheStatus()))
    assert not list(events_of(good, shows("True", "CosignSuccess", "other words")))
    (first,), (second,) = events_of(CacheStatus(), good), events_of(good, bad)
    assert (first.kind, first.reason) == ("Normal", "CosignSuccess")
    assert (second.kind, second.reason, second.note) == ("Warning", "SignatureInvalid", "message")
    assert regarding(cache()).kind == "GKMCache"
