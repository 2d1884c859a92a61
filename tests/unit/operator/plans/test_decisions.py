"""The decisions about a run: the table of docs/design/plans.md."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from gkm_operator.plans.planning.assessment import CurrentPlan, RunAction, decide, node_loss_message
from gkm_operator.plans.state.objects import REPLAN_ANNOTATION, PlanRecord, WatchedRun
from support.operator.plans import run
from support.operator.plans_made import NOW, a_plan, a_run


def current(plan: PlanRecord, **known: object) -> CurrentPlan:
    return CurrentPlan(plan, **({"lost": {}} | known))  # type: ignore[arg-type]


def plan_for(one: WatchedRun, **fields: Any) -> PlanRecord:  # noqa: ANN401 -- those of a_plan
    return a_plan(asked=one.request_hash, **fields)


def test_a_run_without_a_plan_is_planned() -> None:
    assert decide(a_run(), None, NOW).action is RunAction.AFRESH


@pytest.mark.parametrize("with_plan", [True, False])
def test_a_run_that_is_being_deleted_needs_no_action(with_plan: bool) -> None:  # noqa: FBT001 -- a parameter
    one = a_run(deletionTimestamp="2026-01-01T00:00:00Z")
    assert decide(one, current(plan_for(one)) if with_plan else None, NOW).action is RunAction.NOTHING


def test_a_plan_for_the_current_request_stays() -> None:
    one = a_run()
    assert decide(one, current(plan_for(one)), NOW).action is RunAction.KEEP


@pytest.mark.parametrize(("runs", "act"), [(False, RunAction.EXPIRE), (True, RunAction.KEEP)])
def test_a_plan_expires_unless_pods_run(runs: bool, act: RunAction) -> None:  # noqa: FBT001 -- a parameter
    one = a_run()
    assert decide(one, current(plan_for(one, expires=NOW), running=runs), NOW).action is act


def test_a_plan_expires_at_its_time_and_not_before() -> None:
    one = a_run()
    plan = plan_for(one, expires=NOW)
    assert decide(one, current(plan), NOW - timedelta(seconds=1)).action is RunAction.KEEP
    assert decide(one, current(plan), NOW).action is RunAction.EXPIRE


@pytest.mark.parametrize(("runs", "act"), [(False, RunAction.AFRESH), (True, RunAction.AGAIN)])
def test_a_new_annotation_value_requests_a_plan(runs: bool, act: RunAction) -> None:  # noqa: FBT001 -- a parameter
    one = a_run(annotations={REPLAN_ANNOTATION: "2"})
    assert decide(one, current(plan_for(one, again="1"), running=runs), NOW).action is act
    assert decide(one, current(plan_for(one, again="2"), running=runs), NOW).action is RunAction.KEEP


def test_a_removed_annotation_requests_nothing() -> None:
    one = a_run()
    assert decide(one, current(plan_for(one, again="1")), NOW).action is RunAction.KEEP


def test_an_expired_run_is_planned_afresh_after_a_change_or_a_request() -> None:
    changed, wanted = a_run(gpus=64), a_run(annotations={REPLAN_ANNOTATION: "1"})
    old = a_plan(asked=a_run().request_hash, expires=NOW)
    assert decide(changed, current(old), NOW).action is RunAction.AFRESH
    assert decide(wanted, current(old), NOW).action is RunAction.AFRESH


def test_a_changed_run_is_planned_again_from_its_current_placement() -> None:
    assert decide(a_run(gpus=64), current(plan_for(a_run())), NOW).action is RunAction.AGAIN


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flavor", "gb200"),
        ("gpus", 64),
        ("gpusPerPod", 4),
        ("groupGPUs", 8),
        ("spares", 1),
        ("allowCrossGroupSpread", False),
        ("policy", "least-waste"),
        ("apart", "rack"),
        ("perArea", [{"level": "rack", "maxNodes": 16}]),
        ("selector", {"region": "r"}),
        ("tolerations", []),
        ("scopes", [{"name": "s", "maxGPUs": 64}]),
        ("malleability", {"stepGPUs": 8, "minGPUs": 8}),
    ],
)
def test_every_field_that_decides_a_plan_changes_the_request_hash(field: str, value: Any) -> None:  # noqa: ANN401 -- JSON
    assert a_run(**{field: value}).request_hash != a_run().request_hash


@pytest.mark.parametrize(("field", "value"), [("priority", 9), ("labels", {"a": "b"})])
def test_fields_that_decide_no_plan_do_not_change_the_request_hash(field: str, value: Any) -> None:  # noqa: ANN401 -- JSON
    assert a_run(**{field: value}).request_hash == a_run().request_hash


def test_the_order_of_labels_does_not_change_the_request_hash() -> None:
    one, other = ({"labels": dict(pairs)} for pairs in ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]))
    assert a_run(selector=one).request_hash == a_run(selector=other).request_hash


def test_a_plan_without_its_annotation_is_compared_by_generation() -> None:
    one = a_run()
    assert decide(one, current(a_plan(asked="", generation=1)), NOW).action is RunAction.KEEP
    assert decide(one, current(a_plan(asked="", generation=7)), NOW).action is RunAction.AGAIN


def test_lost_nodes_and_conflicting_plans_are_reasons_for_a_new_plan() -> None:
    one = a_run()
    lost = decide(one, current(plan_for(one), lost={"n1": "it is cordoned"}), NOW)
    assert (lost.action, lost.message) == (RunAction.AGAIN, "lost node n1 (it is cordoned)")
    conflict = "another run has GPUs of node n1 too"
    decision = decide(one, current(plan_for(one), conflict=conflict), NOW)
    assert (decision.action, decision.message) == (RunAction.AGAIN, conflict)


def test_a_message_names_few_of_many_lost_nodes() -> None:
    assert node_loss_message({f"n{number}": "gone" for number in range(9)}) == (
        "lost nodes n0 (gone), n1 (gone), n2 (gone) and 6 more"
    )


def test_a_long_annotation_is_stored_as_a_hash() -> None:
    long = a_run(annotations={REPLAN_ANNOTATION: "x" * 200_000}).replan_annotation
    assert long.startswith("sha256-")
    assert len(long) <= 63
    assert long != a_run(annotations={REPLAN_ANNOTATION: "x" * 200_001}).replan_annotation


def test_a_run_is_decoded_without_unused_fields() -> None:
    meta = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000, REPLAN_ANNOTATION: "1"}}
    read = msgspec.convert(run("r", 16) | {"metadata": {"name": "r", "namespace": "a"} | meta}, WatchedRun)
    assert read.metadata.annotations == {REPLAN_ANNOTATION: "1"}
