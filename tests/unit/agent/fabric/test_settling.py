"""Bad news must last, good news is told at once."""

import pytest
from gkm.api.fabric_settings import SettleThresholds
from gkm_agent.fabric.nvlink import FabricVerdict, Health
from gkm_agent.fabric.watch import SettledVerdict, observe
from hypothesis import given
from hypothesis import strategies as st
from support.agent.fabric_values import DOMAIN, OTHER_UUID

RULE = SettleThresholds(readings=3, seconds=90)
GOOD = FabricVerdict(DOMAIN, Health.HEALTHY, "nvidia-gb200")
LIMITED = FabricVerdict(DOMAIN, Health.DEGRADED, "nvidia-gb200")
GONE = FabricVerdict("", Health.UNHEALTHY, "nvidia-gb200")
ELSEWHERE = FabricVerdict(f"{OTHER_UUID}.1", Health.HEALTHY, "nvidia-gb200")
BARE = FabricVerdict("", Health.NONE, "nvidia-gb200")
ANOTHER = FabricVerdict(DOMAIN, Health.HEALTHY, "nvidia-h100")


def told(
    readings: list[tuple[float, FabricVerdict]], rule: SettleThresholds = RULE, *, readable: bool = True
) -> list[FabricVerdict | None]:
    """Return what is told after each of these readings (seconds, reading)."""
    settled, said = SettledVerdict(), []
    for moment, reading in readings:
        settled = observe(settled, reading, moment, rule, readable=readable)
        said.append(settled.reported)
    return said


@pytest.mark.parametrize("first", [GOOD, LIMITED, GONE, BARE])
def test_the_first_reading_settles_at_once(first: FabricVerdict) -> None:
    assert told([(1000, first)]) == [first]


def test_a_first_reading_that_failed_must_last_like_any_bad_news() -> None:
    assert told([(0, GONE), (60, GONE), (120, GONE)], readable=False) == [None, None, GONE]


def test_the_first_success_after_failures_settles_at_once() -> None:
    settled = observe(SettledVerdict(), GONE, 0, RULE, readable=False)
    assert observe(settled, GOOD, 1, RULE).reported == GOOD


@pytest.mark.parametrize("change", [LIMITED, GONE, ELSEWHERE, BARE, ANOTHER])
def test_a_change_for_the_worse_or_to_another_domain_or_model_must_last(change: FabricVerdict) -> None:
    said = told([(0, GOOD), (60, change), (120, change), (180, change)])
    assert said == [GOOD, GOOD, GOOD, change]


def test_both_bounds_must_be_reached() -> None:
    assert told([(0, GOOD), (1, GONE), (2, GONE), (3, GONE), (90, GONE)])[-1] == GOOD
    assert told([(0, GOOD), (1, GONE), (1000, GONE)])[-1] == GOOD
    assert told([(0, GOOD), (1, GONE), (2, GONE), (91, GONE)])[-1] == GONE


@pytest.mark.parametrize(("before", "after"), [(LIMITED, GOOD), (GONE, GOOD), (BARE, GOOD), (GONE, LIMITED)])
def test_an_improvement_settles_at_once(before: FabricVerdict, after: FabricVerdict) -> None:
    assert told([(0, before), (1, after)]) == [before, after]


def test_a_flapping_reading_never_settles() -> None:
    readings = [(60.0 * turn, GONE if turn % 3 else GOOD) for turn in range(100)]
    assert set(told(readings)) == {GOOD}


def test_a_verdict_is_replaced_also_by_contradictions_that_keep_changing() -> None:
    assert told([(0, GOOD), (60, GONE), (120, ELSEWHERE), (180, LIMITED)])[-1] == LIMITED


_READINGS = st.lists(
    st.tuples(st.floats(0, 100), st.sampled_from([GOOD, LIMITED, GONE, ELSEWHERE, BARE, ANOTHER])), max_size=40
)
_RULES = st.builds(SettleThresholds, st.integers(1, 5), st.floats(0, 200))


def _timed(steps: list[tuple[float, FabricVerdict]]) -> list[tuple[float, FabricVerdict]]:
    moment, timed = 0.0, []
    for step, reading in steps:
        moment += step
        timed.append((moment, reading))
    return timed


@given(_READINGS, _RULES)
def test_a_settled_verdict_is_always_a_reading_and_changes_only_to_the_current_one(
    steps: list[tuple[float, FabricVerdict]], rule: SettleThresholds
) -> None:
    readings = _timed(steps)
    said = told(readings, rule)
    for index, (_, reading) in enumerate(readings):
        before = said[index - 1] if index else None
        assert said[index] in (reading, before)


@given(_READINGS, _RULES)
def test_a_worse_verdict_settles_only_after_enough_readings_and_seconds(
    steps: list[tuple[float, FabricVerdict]], rule: SettleThresholds
) -> None:
    readings = _timed(steps)
    said = told(readings, rule)
    for index in range(1, len(readings)):
        before, after = said[index - 1], said[index]
        assert before is not None
        assert after is not None
        if before.domain != after.domain and before.domain:
            held = [moment for moment, reading in readings[:index] if reading == before]
            since = [moment for moment, reading in readings[: index + 1] if moment >= held[-1] and reading != before]
            assert len(since) >= rule.readings
            assert readings[index][0] - held[-1] >= rule.seconds


@given(_READINGS, _RULES, st.sampled_from([GOOD, LIMITED, GONE, ELSEWHERE, BARE]))
def test_a_lasting_reading_settles_in_the_end(
    steps: list[tuple[float, FabricVerdict]], rule: SettleThresholds, last: FabricVerdict
) -> None:
    readings = _timed(steps)
    start = readings[-1][0] if readings else 0.0
    lasting = [(start + 1 + turn * (rule.seconds / rule.readings + 1), last) for turn in range(rule.readings + 1)]
    assert told([*readings, *lasting], rule)[-1] == last
