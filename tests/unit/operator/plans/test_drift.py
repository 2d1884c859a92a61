"""A plan holds the GPUs that the pods of its run hold; against an API in memory."""

from collections.abc import Iterator
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES
from gkm_operator import metrics
from gkm_operator.plans.planning.drift import drift_message
from gkm_operator.plans.state.free_capacity import excess
from support.host.waiting import until
from support.operator.plans import NAMESPACE, PODS, RAW_PLANS, PlansSite, claims, gpu_node


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def started(site: PlansSite, name: str = "r", gpus: int = 16) -> list[str]:
    """Ask for a run and start its pods as its plan says; return the nodes."""
    site.ask(name, gpus)
    site.controller.work()
    site.until(name, "Planned", f"{name}-1")
    nodes = sorted(claims(site.plan(f"{name}-1")))
    start(site, nodes, name)
    return nodes


def start(site: PlansSite, nodes: list[str], name: str = "r") -> None:
    for node in nodes:
        site.pod(f"{name}-{node}", node, 8, name)


def names(site: PlansSite) -> list[str]:
    return sorted(plan["metadata"]["name"] for plan in site.plans())


def passed(site: PlansSite, name: str) -> None:
    """Return after a pass that saw everything before: a run that cannot fit is refused."""
    site.ask(name, 4096)
    site.until(name, "DoesNotFit")


def drift(site: PlansSite, name: str = "r") -> tuple[str, str, str]:
    found = [one for one in site.status(name).get("conditions", []) if one["type"] == "Drift"]
    return next(((one["status"], one["reason"], one["message"]) for one in found), ("", "", ""))


def drifting_gpus() -> float | None:
    return metrics.REGISTRY.get_sample_value("gkm_plan_drift_gpus")


SICK: dict[str, Any] = {
    "not ready": {"ready": "Unknown"},
    "fabric unhealthy": {"gkm.io/fabric-health": "unhealthy"},
    "no GPUs": {"gpus": 0},
    "other flavor": {"gpu__flavor": "gb200"},
    "other domain": {"block": "b9"},
}


@pytest.mark.parametrize("change", SICK.values(), ids=SICK)
def test_a_group_stays_on_a_sick_node_while_its_pods_are_there(site: PlansSite, change: dict[str, Any]) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    first, _ = started(site)
    site.nodes(gpu_node(first, first[:2], **change))
    passed(site, "during")
    site.ask("other", 16)
    site.until("other", "Planned", "other-1")
    site.nodes(gpu_node(first, first[:2]))
    passed(site, "after")
    assert names(site) == ["other-1", "r-1"]
    assert site.planned("r")[1] == "Planned"
    assert drift(site) == ("", "", "")


@pytest.mark.parametrize("end", ["deleted", "being deleted"])
def test_a_group_leaves_a_sick_node_when_its_pods_end(site: PlansSite, end: str) -> None:
    site.rack("d1", 3)
    first, second = started(site)
    site.nodes(gpu_node(first, "d1", ready="Unknown"))
    passed(site, "during")
    assert names(site) == ["r-1"]
    if end == "deleted":
        site.api.delete(PODS, f"r-{first}", NAMESPACE)
    else:
        # The kubelet of a node that does not answer never confirms the deletion.
        ending = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["test/kubelet"]}}
        site.api.merge(PODS, f"r-{first}", ending, NAMESPACE)
    site.until("r", "Planned", "r-2")
    assert first not in claims(site.plan("r-2"))
    assert second in claims(site.plan("r-2"))
    assert site.plan("r-2")["spec"]["reason"].startswith(f"lost node {first} (it is not ready)")


def test_a_node_that_returns_gives_the_plan_back(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    first, second = started(site)
    site.api.delete(NODES, first)
    site.until("r", "Planned", "r-2")
    idle = claims(site.plan("r-2")).keys() - {first, second}
    assert idle
    site.nodes(gpu_node(first, first[:2]))
    site.until("r", "Planned", "r-3")
    assert claims(site.plan("r-3")) == claims(site.plan("r-1"))
    assert site.plan("r-3")["spec"]["reason"].startswith("pods of the run hold ")
    site.ask("other", 16)
    site.until("other", "Planned", "other-1")
    assert claims(site.plan("other-1")).keys() >= idle
    until(lambda: drift(site)[:2] in {("", ""), ("False", "PodsFollowPlan")}, "no drift is left")


def misplaced(site: PlansSite, pods_on: list[str], gpus: int = 16) -> None:
    """Let pods run elsewhere than the plan says, as under a scheduler that does not follow it."""
    site.ask("r", gpus)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    assert not claims(site.plan("r-1")).keys() & set(pods_on)
    start(site, pods_on)


def test_a_plan_follows_pods_that_no_plan_ever_named(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2, block="b2")
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.rewrite("r-1", {"expiresAt": "2100-01-01T00:00:00Z"})
    start(site, ["d2-n0", "d2-n1"])
    site.until("r", "Planned", "r-2")
    assert claims(site.plan("r-2")) == {"d2-n0": 8, "d2-n1": 8}
    reason = "pods of the run hold 16 GPUs that r-1 does not name: 8 of node d2-n0, 8 of node d2-n1"
    assert site.plan("r-2")["spec"]["reason"] == reason
    assert site.plan("r-2")["spec"]["expiresAt"] == "2100-01-01T00:00:00Z"
    site.ask("other", 16)
    site.until("other", "Planned", "other-1")


def test_a_drift_is_reported_before_the_plan_follows(site: PlansSite) -> None:
    site.controller.close()
    site.patience = 3600.0
    site.controller = site.new()
    site.rack("d1", 2)
    site.rack("d2", 2)
    misplaced(site, ["d2-n0", "d2-n1"])
    until(lambda: drift(site)[0] == "True", "the drift is reported")
    assert drift(site)[1] == "PodsOutsidePlan"
    until(lambda: "hold 16 GPUs that r-1 does not name" in drift(site)[2], "both pods count")
    assert drifting_gpus() == 16
    assert names(site) == ["r-1"]
    for node in ("d2-n0", "d2-n1"):
        site.api.delete(PODS, f"r-{node}", NAMESPACE)
    until(lambda: drift(site)[0] == "False", "its end is reported")
    assert drift(site)[1] == "PodsFollowPlan"
    assert drifting_gpus() == 0


def test_pods_that_form_no_group_stay_a_drift_and_prevent_nothing_else(site: PlansSite) -> None:
    site.rack("d1", 3)
    site.rack("d2", 1)
    site.rack("d3", 1)
    misplaced(site, ["d2-n0", "d3-n0"])
    until(lambda: "hold 16 GPUs" in drift(site)[2], "the drift is reported")
    passed(site, "after")
    assert names(site) == ["r-1"]
    assert site.planned("r")[1] == "Planned"
    lost = min(claims(site.plan("r-1")))
    site.cordon(lost)
    site.until("r", "Planned", "r-2")
    assert lost not in claims(site.plan("r-2"))
    assert drift(site)[0] == "True"


@pytest.mark.parametrize(("count", "gpus"), [(1, 9), (65, 1024)])
def test_pods_with_more_gpus_than_their_node_has_break_no_repair(
    site: PlansSite, count: int, gpus: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No node of an inventory has 65 times 1,024 GPUs; a tenant can write pods that ask for them."""
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    (domain,) = {"d1", "d2"} - {min(claims(site.plan("r-1")))[:2]}
    site.controller.close()
    site.controller = site.new()
    for number in range(count):
        site.pod(f"large-{number}", f"{domain}-n0", gpus, "r")
    site.pod("usual", f"{domain}-n1", 8, "r")
    site.controller.work()
    site.until("r", "Planned", "r-2")
    assert claims(site.plan("r-2")) == {f"{domain}-n0": 8, f"{domain}-n1": 8}
    until(lambda: f"hold {count * gpus - 8} GPU" in drift(site)[2], "the rest is reported")
    assert "planner failed for a Run, the other Runs are planned" not in caplog.messages


def test_of_several_groups_those_that_pods_hold_follow_and_the_others_stay(site: PlansSite) -> None:
    for domain in ("d1", "d2", "d3"):
        site.rack(domain, 2)
    site.ask("r", 32)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    taken = claims(site.plan("r-1"))
    (free,) = {"d1", "d2", "d3"} - {node[:2] for node in taken}
    start(site, [min(taken), f"{free}-n0", f"{free}-n1"])
    site.until("r", "Planned", "r-2")
    after = claims(site.plan("r-2"))
    assert {f"{free}-n0", f"{free}-n1", min(taken)} <= after.keys()
    assert len(after) == 4


def test_a_plan_does_not_follow_pods_to_nodes_that_the_request_excludes(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    nodes = started(site)
    (domain,) = {"d1", "d2"} - {nodes[0][:2]}
    site.change("r", {"spec": {"selector": {"labels": {"fabric.domain": domain}}}})
    site.until("r", "Planned", "r-2")
    assert {node[:2] for node in claims(site.plan("r-2"))} == {domain}
    until(lambda: drift(site)[0] == "True", "pods have to move")
    passed(site, "after")
    assert names(site) == ["r-1", "r-2"]


def test_the_plan_of_another_run_moves_no_pods(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    nodes = started(site)
    site.ask("rival", 16, priority=9)
    site.until("rival", "Planned", "rival-1")
    site.controller.close()
    site.rewrite("rival-1", {"groups": site.plan("r-1")["spec"]["groups"]})
    site.restart()
    site.until("rival", "Planned", "rival-2")
    assert claims(site.plan("rival-2")).keys().isdisjoint(nodes)
    passed(site, "after")
    assert [plan for plan in names(site) if plan.startswith("r-")] == ["r-1"]


def test_a_refused_repair_is_repeated_later_and_the_run_stays_planned(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    sent: list[str] = []

    def refuse(verb: str, plural: str) -> ApiError | None:
        if (verb, plural) == ("create", RAW_PLANS.plural):
            sent.append(plural)
            return ApiError(403, "Forbidden", "exceeded quota: plans")
        return None

    site.api.fault = refuse
    (domain,) = {"d1", "d2"} - {min(claims(site.plan("r-1")))[:2]}
    start(site, [f"{domain}-n0", f"{domain}-n1"])
    until(lambda: bool(sent), "the repair is sent")
    passed(site, "after")
    assert (len(sent), site.planned("r")[1], drift(site)[0]) == (1, "Planned", "True")


def test_gpus_outside_of_a_plan_are_those_beyond_its_claims() -> None:
    assert excess({"a": 8, "b": 12, "c": 4}, {"a": 8, "b": 8}) == {"b": 4, "c": 4}
    assert excess({}, {"a": 8}) == {}
    many = {f"n{number}": 8 for number in range(5)}
    assert drift_message("r-1", many).endswith("8 of node n0, 8 of node n1, 8 of node n2 and others of 2 more")
