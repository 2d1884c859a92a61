"""Runs are planned, replanned, refused and expire, against an API in memory."""

from collections.abc import Iterator

import pytest
from gkm_operator import metrics
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.planning import fragmentation_metrics
from gkm_operator.plans.state.objects import RunKey
from support.host.waiting import until
from support.kube.leading import leading
from support.operator.plans import (
    NAMESPACE,
    PODS,
    RAW_CLAIMS,
    RAW_PLANS,
    RAW_RUNS,
    PlansSite,
    claims,
    gpu_node,
    overallocated,
)


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def test_a_run_gets_a_plan_and_its_status(site: PlansSite) -> None:
    site.rack("d1")
    site.rack("d2", 2)
    site.ask("r", 32)
    site.controller.work()
    status = site.until("r", "Planned", "r-1")
    assert (status["gpus"], status["domains"], status["observedGeneration"]) == (32, 1, 1)
    plan = site.plan("r-1")
    assert claims(plan) == {f"d1-n{number}": 8 for number in range(4)}
    owner = plan["metadata"]["ownerReferences"][0]
    uid = site.api.get(RAW_RUNS, "r", NAMESPACE)["metadata"]["uid"]
    assert owner == {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "Run",
        "name": "r",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    assert plan["spec"]["metrics"]["fragmentation"]["largestGroup"] == 16
    until(lambda: site.events() == [("r", "Planned")], "it is told once")


def test_two_runs_share_no_gpu_and_the_second_is_refused_with_a_reason(site: PlansSite) -> None:
    site.rack("d1")
    site.ask("first", 16, priority=1)
    site.ask("second", 16)
    site.ask("third", 16)
    site.controller.work()
    site.until("first", "Planned")
    site.until("second", "Planned")
    status = site.until("third", "DoesNotFit")
    assert overallocated(site.plans(), {f"d1-n{number}": 8 for number in range(4)}) == {}
    assert status["bindingLevel"] == "node"
    assert status["largestFeasibleGroups"] == 0
    assert "no node has 8 GPUs free" in site.planned("third")[2]
    until(lambda: ("third", "DoesNotFit") in site.events(), "it is told")


def test_the_run_of_higher_priority_gets_the_last_gpus(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("a", 16)
    site.ask("b", 16, priority=5)
    site.controller.work()
    site.until("b", "Planned")
    site.until("a", "DoesNotFit")


def test_a_refusal_lists_fixes(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("r", 32, allowCrossGroupSpread=False)
    site.controller.work()
    site.until("r", "DoesNotFit")
    until(lambda: bool(site.status("r").get("fixes")), "fixes are found")
    kinds = {fix["kind"] for fix in site.status("r")["fixes"]}
    assert "spread" in kinds


def test_a_refused_run_is_planned_when_gpus_become_free(site: PlansSite) -> None:
    site.rack("d1", 1)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "DoesNotFit")
    site.rack("d2", 2)
    assert site.until("r", "Planned", "r-1").get("bindingLevel") is None


def test_pods_with_the_run_label_use_its_reservation(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned")
    for number, node in enumerate(sorted(claims(site.plan("r-1")))):
        site.pod(f"p{number}", node, 8, "r")
    site.ask("next", 16)
    site.until("next", "Planned")
    assert not claims(site.plan("r-1")).keys() & claims(site.plan("next-1")).keys()


def test_a_malleable_run_is_made_smaller(site: PlansSite) -> None:
    site.rack("d1", 3)
    site.ask("r", 32, groupGPUs=8, malleability={"stepGPUs": 8, "minGPUs": 8})
    site.controller.work()
    assert site.until("r", "Planned")["gpus"] == 24
    assert "24 of 32 GPUs" in site.planned("r")[2]


def test_a_recreated_run_ignores_the_plans_of_its_namesake(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.api.delete(RAW_RUNS, "r", NAMESPACE)
    site.ask("r", 16)
    site.until("r", "Planned", "r-2")


def test_a_plan_of_the_last_run_does_not_outlive_it_nor_do_its_metrics(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragmentation_metrics, "SECONDS", 0.0)
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    until(lambda: free_gpus() == 16, "the plan holds GPUs")
    site.api.delete(RAW_RUNS, "r", NAMESPACE)
    site.api.merge(RAW_PLANS, "r-1", {"metadata": {"ownerReferences": None}}, NAMESPACE)
    until(lambda: not site.plans(), "the plan of no run goes")
    until(lambda: free_gpus() == 32, "all GPUs are free")


def free_gpus() -> float | None:
    return metrics.REGISTRY.get_sample_value("gkm_free_gpus", {"level": "all"})


def test_a_plan_whose_status_was_not_written_is_adopted(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.controller.close()
    site.api.apply(
        RAW_RUNS,
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "Run",
            "metadata": {"name": "r", "namespace": NAMESPACE},
            "status": {},
        },
        field_manager="gkm-operator",
        subresource="status",
    )
    assert site.planned("r") == ("", "", "")
    site.restart()
    site.until("r", "Planned", "r-1")
    assert len(everything_named(site, "r-")) == 1


def test_an_unknown_flavor_is_refused_with_the_known_flavors(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.nodes(gpu_node("g", "d9", 4, gpu__flavor="gb200"))
    site.ask("r", 16, flavor="h20")
    site.controller.work()
    site.until("r", "DoesNotFit")
    assert site.planned("r")[2] == "no node has flavor h20; there are h100 (2 nodes), gb200 (1 node)"


def test_a_refusal_names_contradictory_nodes(site: PlansSite) -> None:
    site.nodes(gpu_node("a", "d1", block="b1"), gpu_node("b", "d1", block="b2"))
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "LabelsInvalid")
    assert "0 of 2 nodes of its flavor can be used: 2 DomainInSeveralBlocks. domain " in site.planned("r")[2]
    assert site.status("r")["bindingLevel"] == "block"


def test_an_undecodable_node_is_quarantined_and_runs_are_planned(site: PlansSite) -> None:
    site.rack("d1", 2)
    wrong = gpu_node("wrong", "d2")
    wrong["spec"]["taints"] = "none"
    site.nodes(wrong)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned")


def test_a_pod_with_an_unknown_number_of_gpus_quarantines_its_node(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.pod("p", "d1-n0", 8)
    site.api.merge(PODS, "p", {"spec": {"containers": [{}] * 5000}}, NAMESPACE)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "DoesNotFit")
    assert "1 PodInvalid" in site.planned("r")[2]


def everything_named(site: PlansSite, begins: str) -> list[str]:
    return [plan["metadata"]["name"] for plan in site.plans() if plan["metadata"]["name"].startswith(begins)]


def test_the_plan_of_an_undecodable_run_keeps_its_reservation(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.controller.close()
    site.change("r", {"spec": {"gpus": "many"}})
    site.restart()
    site.ask("other", 16)
    site.until("other", "DoesNotFit")
    assert [plan["metadata"]["name"] for plan in site.plans()] == ["r-1"]


def test_the_change_of_a_run_ends_every_pause(site: PlansSite) -> None:
    site.controller = PlansController(leading(site.api, lambda: True), site.config, calm=3600.0, pause=3600.0)
    site.rack("d1")
    site.controller.work()
    for name in ("first", "second"):
        site.ask(name, 8)
        site.until(name, "Planned", f"{name}-1")
    site.api.delete(RAW_RUNS, "first", NAMESPACE)
    site.ask("third", 16)
    site.until("third", "Planned", "third-1")


def test_gpus_of_claims_are_in_use_and_those_of_a_run_are_its_own(site: PlansSite) -> None:
    site.rack("d1", 2)
    site.claim("of-another", "d1-n0", 8)
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "DoesNotFit")
    site.ask("small", 8)
    site.until("small", "Planned", "small-1")
    assert set(claims(site.plan("small-1"))) == {"d1-n1"}
    site.pod("p", "d1-n1", 0, "small")
    site.claim("own", "d1-n1", 8, "p")
    own = RunKey(NAMESPACE, "small")
    until(lambda: site.controller.watcher.snapshot().pods.of(own) == {"d1-n1": 8}, "the claim is its own")
    site.api.delete(RAW_CLAIMS, "of-another", NAMESPACE)
    site.ask("next", 8)
    site.until("next", "Planned", "next-1")
    assert set(claims(site.plan("next-1"))) == {"d1-n0"}
