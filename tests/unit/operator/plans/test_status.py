"""The status of a Run, and the Events about it."""

from gkm.api.meta import Condition, timestamp
from gkm.api.runs import RunFix, RunStatus
from gkm.packing.values import Fix, FixKind
from gkm_operator.plans.planning.assessment import PlanningResult
from gkm_operator.plans.planning.refusals import Unfit
from gkm_operator.plans.write.status import (
    apply_configuration,
    desired_status,
    differs_in_numbers_only,
    is_recent,
    plan_events,
    refusal_event,
)
from support.operator.plans_made import NOW, a_plan, a_run

T1, T2 = "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"
UNFIT = Unfit("DoesNotFit", "there is no room", "capacity", 3)
FIX = Fix(FixKind.SMALLER, "ask for less", {"gpus": 8})


def status_after(result: PlanningResult, old: RunStatus | None = None, now: str = T1) -> RunStatus:
    return desired_status(a_run(), old or RunStatus(), result, now, None)


def test_the_message_of_a_plan_has_its_sizes_and_bound() -> None:
    status = status_after(PlanningResult(a_plan()))
    assert (status.gpus, status.domains) == (32, 2)
    assert status.plan_ref is not None
    assert status.plan_ref.name == "r-1"
    [condition] = status.conditions
    assert (condition.status, condition.reason) == ("True", "Planned")
    assert condition.message == (
        "32 GPUs in 2 groups: 2 domains in 1 block, 0 GPUs stranded; no plan has fewer than 2 domains (gap 0)"
    )


def test_a_refusal_has_its_level_and_fixes() -> None:
    status = status_after(PlanningResult(unfit=UNFIT, fixes=(FIX,)))
    assert (status.binding_level, status.largest_feasible_groups) == ("capacity", 3)
    assert status.fixes == [RunFix("smaller", "ask for less")]
    assert status.plan_ref is None
    assert status.conditions[0].message == "there is no room"


def test_fixes_stay_until_the_next_search() -> None:
    first = status_after(PlanningResult(unfit=UNFIT, fixes=(FIX,)))
    assert status_after(PlanningResult(unfit=UNFIT), first).fixes == first.fixes
    assert status_after(PlanningResult(unfit=Unfit("TooLarge", "")), first).fixes == []
    assert status_after(PlanningResult(unfit=UNFIT, fixes=()), first).fixes == []
    assert status_after(PlanningResult(a_plan()), first).fixes == []


def test_a_refusal_names_the_plan_that_stays_current() -> None:
    status = status_after(PlanningResult(a_plan(), unfit=UNFIT, message="lost node n (it is cordoned)"))
    assert status.plan_ref is not None
    assert status.conditions[0].message == "lost node n (it is cordoned): there is no room; r-1 stays current"


def test_the_message_of_an_expired_plan_names_the_annotation() -> None:
    status = status_after(PlanningResult(a_plan(expires=NOW), expired=True))
    assert status.conditions[0].reason == "PlanExpired"
    assert f"expired at {timestamp(NOW)}" in status.conditions[0].message
    assert "gkm.io/plan-again" in status.conditions[0].message


def test_an_unchanged_status_is_equal_and_keeps_its_transition_time() -> None:
    first = status_after(PlanningResult(a_plan()))
    assert status_after(PlanningResult(a_plan()), first, T2) == first
    refused = status_after(PlanningResult(unfit=UNFIT), first, T2)
    assert refused.conditions[0].last_transition_time == T2


def test_statuses_that_differ_in_numbers_are_recognized() -> None:
    first = status_after(PlanningResult(unfit=UNFIT))
    assert differs_in_numbers_only(
        first, status_after(PlanningResult(unfit=Unfit("DoesNotFit", "less room", "capacity", 2)), first)
    )
    assert not differs_in_numbers_only(
        first, status_after(PlanningResult(unfit=Unfit("DoesNotFit", "less room", "domain", 2)), first)
    )
    assert not differs_in_numbers_only(first, status_after(PlanningResult(unfit=UNFIT, fixes=(FIX,)), first))
    assert not differs_in_numbers_only(RunStatus(), first)


def test_a_message_is_cut_at_the_limit_of_the_api() -> None:
    status = status_after(PlanningResult(unfit=Unfit("DoesNotFit", "x" * 10_000)))
    assert len(status.conditions[0].message) == 2048


def test_the_status_is_applied_to_one_version_and_zeros_are_written_out() -> None:
    value = apply_configuration(a_run(), status_after(PlanningResult(unfit=UNFIT)), "7")
    assert value["metadata"] == {"name": "r", "namespace": "team", "resourceVersion": "7"}
    assert (value["status"]["gpus"], value["status"]["domains"]) == (0, 0)


def test_a_new_plan_has_an_event() -> None:
    assert [event.reason for event in plan_events(a_plan())] == ["Planned"]


def test_a_refusal_has_an_event_when_its_reason_changes() -> None:
    first = status_after(PlanningResult(unfit=UNFIT))
    event = refusal_event(RunStatus(), first)
    assert event is not None
    assert (event.kind, event.reason, event.note) == ("Warning", "DoesNotFit", "there is no room")
    assert refusal_event(first, status_after(PlanningResult(unfit=Unfit("DoesNotFit", "less")), first)) is None
    assert refusal_event(first, status_after(PlanningResult(a_plan()), first)) is None
    other = RunStatus(conditions=[Condition("Planned", "False", "TooLarge", "", T1)])
    assert refusal_event(first, other) is not None


def test_a_plan_is_recent_for_two_minutes() -> None:
    assert is_recent(a_plan(created="2026-03-01T11:58:00Z"), NOW)
    assert not is_recent(a_plan(created="2026-03-01T11:57:59Z"), NOW)
    assert not is_recent(a_plan(), NOW)
