"""Tenants who try to get more than their share of planning time, memory, etcd, GPUs or information."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from gkm.api.meta import timestamp
from gkm_operator.plans.planning.assessment import (
    BURST,
    BURST_SECONDS,
    PlanDecision,
    PlanningResult,
    ReplanLimit,
    RunAction,
    RunAssessment,
)
from gkm_operator.plans.planning.refusals import RefusalCache, Unfit
from gkm_operator.plans.reconciler import RunReconciler
from gkm_operator.plans.state.free_capacity import PodUsage
from gkm_operator.plans.state.node_loss import NodeIndex
from gkm_operator.plans.state.objects import WatchedRun, name_of
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from hypothesis import given
from hypothesis import strategies as st
from support.host.waiting import until
from support.kube.garbage import collect_garbage
from support.operator.plans import NAMESPACE, PODS, RAW_PLANS, RAW_RUNS, PlansSite, claims
from support.operator.plans_made import NOW, a_plan, a_run, a_survey, fleet

OLD = "2026-01-01T00:00:00Z"
NAMES = st.text("ab-01", min_size=1, max_size=6).filter(lambda name: name[0] != "-" and name[-1] != "-")


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


@given(NAMES, st.integers(1, 99), NAMES, st.integers(1, 99))
def test_plans_of_different_runs_have_different_names(one: str, first: int, other: str, second: int) -> None:
    assert (name_of(one, first) == name_of(other, second)) == ((one, first) == (other, second))


def test_long_annotations_of_a_run_are_not_stored() -> None:
    text = "x" * 250_000
    run = a_run(annotations={"gkm.io/plan-again": text, "other": text})
    assert len(msgspec.json.encode(run)) < 2000
    assert 0 < len(run.replan_annotation) <= 63
    assert run.replan_annotation != a_run(annotations={"gkm.io/plan-again": f"{text}x"}).replan_annotation


def test_the_labels_of_a_run_are_few() -> None:
    most = {f"{'d' * 250}.{number:02}/{'k' * 63}": "v" * 63 for number in range(32)}
    assert len(a_run(labels=most).text) < 16_000
    with pytest.raises(msgspec.ValidationError, match=r"length <= 32 - at `\$\.spec\.labels`"):
        a_run(labels=most | {"one": "more"})


class Slow:
    """Attempts of three seconds each; nothing fits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[str] = []
        self.refusals = RefusalCache()

    def plan(self, case: Any, *_: object) -> PlanningResult:  # noqa: ANN401 -- a Case
        self.now += 3.0
        self.turns.append(case.run.metadata.name)
        return PlanningResult(unfit=Unfit("DoesNotFit", "it does not fit"))


class Silent:
    """A writer of nothing."""

    def status(self, run: WatchedRun) -> object:
        return run.status

    def write_status(self, *_: object) -> None:
        return None


def test_new_runs_of_high_priority_do_not_starve_others() -> None:
    slow: Any = Slow()
    writer: Any = Silent()
    sweeper = RunReconciler(writer, slow, clock=lambda: slow.now)
    modest = a_run("modest")
    for sweep in range(4):
        newcomers = [a_run(f"new-{sweep}-{number}", priority=9) for number in range(3)]
        nodes = NodeIndex(a_survey(*fleet()), {})
        moment = datetime(2026, 3, 1, tzinfo=UTC)
        sweeper.reconcile(ClusterSnapshot(moment, [modest, *newcomers], frozenset(), {}, PodUsage(), nodes, sweep))
    assert "modest" in slow.turns


def test_a_run_whose_plan_expired_waits_behind_those_that_came_before_that() -> None:
    expired, live = (a_plan(expires=moment) for moment in (NOW, NOW + timedelta(hours=1)))
    again, lost = PlanDecision(RunAction.AFRESH), PlanDecision(RunAction.AGAIN)
    cases = [
        RunAssessment(a_run("later", creationTimestamp=timestamp(NOW + timedelta(1))), None, again, None),
        RunAssessment(a_run("expired", creationTimestamp=OLD), expired, again, None, over=True, started=True),
        RunAssessment(a_run("waits", creationTimestamp=timestamp(NOW - timedelta(1))), None, again, None),
        RunAssessment(a_run("lost-a-node", creationTimestamp=OLD), live, lost, None, started=True),
    ]
    order = [case.run.metadata.name for case in sorted(cases, key=lambda case: case.order)]
    assert order == ["lost-a-node", "waits", "expired", "later"], "a run that had its turn went before one that waits"


def test_replans_are_limited_to_a_burst() -> None:
    now = [0.0]
    pace = ReplanLimit(lambda: now[0])
    for _ in range(BURST):
        assert not pace.is_exceeded("r")
        pace.record("r")
    assert pace.is_exceeded("r")
    assert not pace.is_exceeded("other")
    now[0] = BURST_SECONDS
    assert not pace.is_exceeded("r")


def test_a_run_that_changes_all_the_time_gets_few_plans(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 8)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    for number in range(2, BURST + 1):
        site.change("r", {"spec": {"gpus": 8 * (2 - number % 2)}})
        site.until("r", "Planned", f"r-{number}")
    site.change("r", {"spec": {"gpus": 24}})
    site.ask("after", 8)
    site.until("after", "Planned")
    assert site.status("r")["planRef"] == {"name": f"r-{BURST}"}
    lost = min(claims(site.plan(f"r-{BURST}")))
    site.change("r", {"spec": {"gpus": 8 * (2 - BURST % 2)}})
    site.cordon(lost)
    site.until("r", "Planned", f"r-{BURST + 1}")


def test_an_orphaned_plan_is_deleted(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.ask("other", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.until("other", "Planned")
    # In this order: to a Run that is still there without its plan another is given.
    site.api.delete(RAW_RUNS, "r", NAMESPACE)
    site.api.merge(RAW_PLANS, "r-1", {"metadata": {"ownerReferences": None}}, NAMESPACE)

    def names() -> list[str]:
        # A pass that read the Run before its deletion gives it another plan, which has an owner that is gone.
        collect_garbage(site.api)
        return [plan["metadata"]["name"] for plan in site.plans()]

    until(lambda: names() == ["other-1"], "the plan of no run goes")


def test_a_restored_old_plan_moves_no_running_run(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("greedy", 16, selector={"labels": {"fabric.domain": "d1"}}, priority=9)
    site.controller.work()
    site.until("greedy", "Planned", "greedy-1")
    site.change("greedy", {"spec": {"selector": {"labels": {"fabric.domain": "d2"}}}})
    site.until("greedy", "Planned", "greedy-2")
    site.ask("honest", 16)
    site.until("honest", "Planned", "honest-1")
    for number, node in enumerate(sorted(claims(site.plan("honest-1")))):
        site.pod(f"p{number}", node, 8, "honest")
    site.change("greedy", {"spec": {"selector": {"labels": {"fabric.domain": "d1"}}}})
    site.until("greedy", "DoesNotFit", "greedy-2")
    site.api.delete(RAW_PLANS, "greedy-2", NAMESPACE)
    site.until("greedy", "DoesNotFit", "greedy-1")
    site.ask("after", 16)
    site.until("after", "Planned")
    assert site.status("honest")["planRef"] == {"name": "honest-1"}


def test_a_refusal_names_no_pod_of_another_namespace(site: PlansSite) -> None:
    site.rack("d1", 1)
    site.pod("merger-with-acme", "d1-n0", 8, namespace="board")
    site.api.merge(PODS, "merger-with-acme", {"spec": {"containers": [{}] * 5000}}, "board")
    site.ask("r", 8)
    site.controller.work()
    site.until("r", "LabelsInvalid")
    assert "1 PodInvalid" in site.planned("r")[2]
    assert "acme" not in site.planned("r")[2]
