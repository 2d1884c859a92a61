"""How often the status of a run is written: at once if a user waits for it, rarely if only numbers change."""

from dataclasses import replace
from typing import Any

from gkm.api.runs import RunStatus
from gkm_operator.plans.planning.assessment import PlanningResult
from gkm_operator.plans.planning.refusals import Unfit
from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.write.writer import MAX_REFUSALS, NUMBERS_SECONDS, StatusThrottle
from support.operator.plans_made import a_plan, a_run

UNFIT = Unfit("DoesNotFit", "there is room for 3 groups", "capacity", 3)


class FakeWriter:
    """What a Writer does, without an API."""

    def __init__(self) -> None:
        self.statuses: dict[str, RunStatus] = {}
        self.count = 0

    def status(self, run: WatchedRun) -> RunStatus:
        return self.statuses.get(run.metadata.uid, run.status)

    def write_status(self, run: WatchedRun, new: RunStatus) -> None:
        self.statuses[run.metadata.uid] = new
        self.count += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_throttle(writer: Any, clock: Clock) -> StatusThrottle:  # noqa: ANN401 -- as a Writer
    made = StatusThrottle(writer, clock)
    made.begin("2026-03-01T12:00:00Z")
    return made


def test_an_unchanged_status_is_not_written() -> None:
    writer = FakeWriter()
    throttle = a_throttle(writer, Clock())
    for _ in range(3):
        throttle.report(a_run(), PlanningResult(a_plan()))
    assert writer.count == 1


def test_a_status_that_differs_in_numbers_is_delayed_and_not_lost() -> None:
    writer, clock = FakeWriter(), Clock()
    throttle = a_throttle(writer, clock)
    throttle.report(a_run(), PlanningResult(unfit=UNFIT))
    less = replace(UNFIT, message="there is room for 2 groups", largest=2)
    throttle.report(a_run(), PlanningResult(unfit=less))
    assert (writer.count, throttle.held_back) == (1, True)
    clock.now = NUMBERS_SECONDS
    throttle.begin("2026-03-01T12:00:30Z")
    throttle.report(a_run(), PlanningResult(unfit=less))
    assert (writer.count, throttle.held_back) == (2, False)


def test_a_new_reason_and_a_plan_are_written_at_once() -> None:
    writer = FakeWriter()
    throttle = a_throttle(writer, Clock())
    throttle.report(a_run(), PlanningResult(unfit=UNFIT))
    throttle.report(a_run(), PlanningResult(unfit=replace(UNFIT, reason="TooLarge")))
    throttle.report(a_run(), PlanningResult(a_plan()))
    assert (writer.count, throttle.held_back) == (3, False)


def test_many_refusals_take_several_passes_and_do_not_delay_plans() -> None:
    writer = FakeWriter()
    throttle = a_throttle(writer, Clock())
    for number in range(MAX_REFUSALS + 5):
        throttle.report(a_run(f"r{number}"), PlanningResult(unfit=UNFIT))
    assert (writer.count, throttle.held_back) == (MAX_REFUSALS, True)
    throttle.report(a_run("planned"), PlanningResult(a_plan()))
    assert writer.count == MAX_REFUSALS + 1
    throttle.begin("2026-03-01T12:00:02Z")
    for number in range(MAX_REFUSALS + 5):
        throttle.report(a_run(f"r{number}"), PlanningResult(unfit=UNFIT))
    assert (writer.count, throttle.held_back) == (MAX_REFUSALS + 6, False)
