"""A plan supersedes another: nodes are lost, a Run changes, time passes; against an API in memory."""

from collections.abc import Iterator

import pytest
from gkm.api.plans import PlanSpec
from gkm.kube.resources import NODES
from gkm.packing.conversion import groups_of
from msgspec import convert
from support.host.waiting import until
from support.operator.plans import NAMESPACE, PODS, RAW_RUNS, PlansSite, claims, gpu_node


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def test_a_cordoned_node_loses_the_groups_without_running_pods_only(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.rack("d3", 2)
    site.ask("r", 32)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    before = {group["index"]: group for group in unfolded(site.plan("r-1"))}
    lost = min(claims(site.plan("r-1")))
    site.cordon(lost)
    site.until("r", "Planned", "r-2")
    plan = site.plan("r-2")
    assert plan["spec"]["supersedes"] == "r-1"
    assert lost in plan["spec"]["reason"]
    assert lost not in claims(plan)
    stayed = [group for group in unfolded(plan) if group == before.get(group["index"])]
    assert len(stayed) == 1
    until(lambda: ("r", "Superseded") in site.events(), "it is told")


def test_pods_that_run_on_a_cordoned_node_stay(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    for number, node in enumerate(sorted(claims(site.plan("r-1")))):
        site.pod(f"p{number}", node, 8, "r")
    site.cordon(min(claims(site.plan("r-1"))))
    site.ask("after", 16)
    site.until("after", "Planned")
    assert [plan["metadata"]["name"] for plan in site.plans()] == ["after-1", "r-1"]


def test_a_deleted_node_is_not_in_the_next_plan(site: PlansSite) -> None:
    site.rack("d1", 3)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    lost = min(claims(site.plan("r-1")))
    site.api.delete(NODES, lost)
    site.until("r", "Planned", "r-2")
    assert lost not in claims(site.plan("r-2"))


def test_if_lost_groups_fit_nowhere_the_plan_stays_and_the_run_reports_it(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.cordon("d1-n0")
    site.until("r", "DoesNotFit", "r-1")
    assert "d1-n0 (it is cordoned)" in site.planned("r")[2]
    assert site.planned("r")[2].endswith("; r-1 stays current")


def test_a_run_that_changes_gets_another_plan(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16, labels={"a": "b"})
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.change("r", {"spec": {"gpus": 32}})
    assert site.until("r", "Planned", "r-2")["gpus"] == 32
    site.change("r", {"spec": {"priority": 7, "labels": {"a": "c"}}})
    site.ask("after", 16)
    site.until("after", "DoesNotFit")
    assert site.status("r")["planRef"] == {"name": "r-2"}
    assert [site.plan(name)["spec"]["labels"] for name in ("r-1", "r-2")] == [{"a": "b"}] * 2
    site.change("r", {"metadata": {"annotations": {"gkm.io/plan-again": "please"}}})
    site.until("r", "Planned", "r-3")
    assert site.plan("r-3")["spec"]["labels"] == {"a": "c"}


def test_an_expired_plan_reserves_nothing_and_a_request_makes_another(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.expire("r-1")
    site.until("r", "PlanExpired", "r-1")
    assert "gkm.io/plan-again" in site.planned("r")[2]
    site.ask("other", 16)
    site.until("other", "Planned")
    site.change("r", {"metadata": {"annotations": {"gkm.io/plan-again": "please"}}})
    site.until("r", "DoesNotFit", "r-1")
    site.api.delete(RAW_RUNS, "other", NAMESPACE)
    # No pod of the run ever came: its time is over, and the new plan says only where it would fit.
    site.until("r", "PlanExpired", "r-2")
    assert site.plan("r-2")["metadata"]["annotations"]["gkm.io/plan-again"] == "please"
    until(lambda: ("r", "PlanExpired") in site.events(), "it is told")


def test_a_plan_whose_pods_run_does_not_expire(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.pod("p", "d1-n0", 8, "r")
    site.expire("r-1")
    site.ask("other", 8)
    site.until("other", "Planned")
    assert claims(site.plan("other-1")) == {"d1-n1": 8}
    assert site.planned("r")[1] == "Planned"
    site.api.delete(PODS, "p", NAMESPACE)
    site.until("r", "PlanExpired")


def test_the_newest_three_plans_stay(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    for number in range(1, 6):
        site.until("r", "Planned", f"r-{number}")
        site.change("r", {"metadata": {"annotations": {"gkm.io/plan-again": str(number)}}})
    site.until("r", "Planned", "r-6")
    names = ["r-4", "r-5", "r-6"]
    until(lambda: sorted(plan["metadata"]["name"] for plan in site.plans()) == names, "older ones are deleted")


def unfolded(plan: dict[str, object]) -> list[dict[str, object]]:
    """The groups of a plan with what they are compared by: index and GPUs by node."""
    groups = groups_of(convert(plan["spec"], PlanSpec))
    return [{"index": group.index, "nodes": dict(group.nodes)} for group in groups]


def test_a_node_that_is_not_ready_for_a_moment_moves_no_run(site: PlansSite) -> None:
    site.controller.close()
    site.patience = 3600.0
    site.controller = site.new()
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    first, second = sorted(claims(site.plan("r-1")))
    site.nodes(gpu_node(first, "d1", ready="Unknown"))
    site.ask("after", 16)
    site.until("after", "Planned", "after-1")
    assert site.status("r")["planRef"] == {"name": "r-1"}
    # The permanent problem moves that node only: the group stays on the other node, which may recover.
    site.cordon(second)
    site.until("r", "DoesNotFit", "r-1")
    site.rack("d2", 2)
    site.until("r", "Planned", "r-2")
    assert second not in claims(site.plan("r-2"))
