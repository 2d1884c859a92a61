"""Waiting of tests: it looks often at first and rarely later, and one variable makes all deadlines longer."""

import pytest
from support.host import waiting
from support.host.waiting import TIME_SCALE, scaled, time_scale, until


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "_SCALE", 1.0)
    return made


def test_a_condition_that_holds_costs_no_pause(clock: Clock) -> None:
    assert until(lambda: "there", "it") == "there"
    assert clock.pauses == []


def test_the_pause_doubles_from_a_millisecond_to_fifty(clock: Clock) -> None:
    until(lambda: len(clock.pauses) == 9, "nine looks")
    assert clock.pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05, 0.05]


def test_a_fixed_pause_stays(clock: Clock) -> None:
    until(lambda: len(clock.pauses) == 3, "three looks", every=0.25)
    assert clock.pauses == [0.25, 0.25, 0.25]


def test_after_the_deadline_the_error_names_the_condition_and_the_last_value(clock: Clock) -> None:
    with pytest.raises(TimeoutError, match=r"^waited 2 s for the light; last seen: \[\]$"):
        until(list[str], "the light", 2.0)
    assert 2.0 <= clock.seconds < 2.1


def test_the_scale_makes_the_deadline_longer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_SCALE", 3.0)
    assert scaled(2.0) == 6.0
    with pytest.raises(TimeoutError, match=r"^waited 6 s for the light$"):
        until(lambda: False, "the light", 2.0)
    assert 6.0 <= clock.seconds < 6.1


@pytest.mark.parametrize(("word", "scale"), [("", 1.0), ("1", 1.0), ("2.5", 2.5), ("0.5", 0.5)])
def test_the_scale_is_a_variable_of_the_environment(word: str, scale: float) -> None:
    assert time_scale({TIME_SCALE: word}) == scale
    assert time_scale({}) == 1.0


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "twice"])
def test_a_scale_that_is_no_positive_number_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"^GKM_TEST_TIME_SCALE={word}: must be a positive number"):
        time_scale({TIME_SCALE: word})
