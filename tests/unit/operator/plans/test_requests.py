"""The controllers plan no run on nodes where its pods cannot start, and plan it once they can."""

from collections.abc import Iterator

import pytest
from support.operator.plans import NAMESPACE, PODS, RAW_RUNS, PlansSite, claims, gpu_node
from support.topology.kube_lists import Json


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    for name in ("n0", "n1"):
        node = gpu_node(name, "d1")
        node["status"]["allocatable"] |= {"cpu": "192", "memory": "2Ti", "pods": "110"}
        made.nodes(node)
    yield made
    made.controller.close()


def cpu_pod(name: str, node: str, cpu: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    }


def test_a_run_waits_for_cpus_that_a_pod_without_gpus_has_and_is_planned_when_it_ends(site: PlansSite) -> None:
    site.api.create(PODS, cpu_pod("other", "n0", "191"))
    site.ask("first", 24)
    site.controller.work()
    site.until("first", "DoesNotFit")
    # The nodes have been read by now: no later pass begins because of them.
    site.ask("r", 16)
    site.until("r", "DoesNotFit")
    assert "not counted are 1 InsufficientCPU" in site.planned("r")[2]
    site.api.delete(PODS, "other", NAMESPACE)
    site.until("r", "Planned", "r-1")


def test_the_requests_of_a_run_decide(site: PlansSite) -> None:
    site.api.create(PODS, cpu_pod("other", "n0", "100"))
    site.ask("large", 16, requests={"cpu": 93, "memory": "1Gi"})
    site.ask("small", 16, requests={"cpu": "92", "memory": "1Gi"})
    site.controller.work()
    site.until("small", "Planned", "small-1")
    site.until("large", "DoesNotFit")


def test_a_run_keeps_nodes_of_its_plan_on_which_others_took_the_cpus(site: PlansSite) -> None:
    site.ask("r", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.pod("own", "n0", 8, "r")
    site.api.create(PODS, cpu_pod("other", "n1", "191"))
    site.api.merge(RAW_RUNS, "r", {"metadata": {"annotations": {"gkm.io/plan-again": "1"}}}, NAMESPACE)
    site.until("r", "Planned", "r-2")
    assert claims(site.plan("r-2")) == {"n0": 8, "n1": 8}


def test_the_requests_of_pods_that_have_not_started_count_against_later_runs(site: PlansSite) -> None:
    half = {"gpusPerPod": 4, "groupGPUs": 4}
    site.ask("first", 4, **half, requests={"cpu": "150", "memory": "1Gi"})
    site.controller.work()
    site.until("first", "Planned", "first-1")
    (taken,) = claims(site.plan("first-1"))
    for name, cpu in (("fits", "42"), ("does-not", "43")):
        site.ask(name, 12, **half, requests={"cpu": cpu, "memory": "1Gi"})
    site.until("fits", "Planned", "fits-1")
    assert claims(site.plan("fits-1"))[taken] == 4
    site.until("does-not", "DoesNotFit")


def test_the_requests_of_runs_of_one_pass_count_for_each_other(site: PlansSite) -> None:
    for name, gpus, cpu in (("a", 4, "50"), ("b", 4, "150"), ("c", 8, "50"), ("d", 4, "50")):
        site.ask(name, gpus, gpusPerPod=4, groupGPUs=4, requests={"cpu": cpu, "memory": "1Gi"})
    site.controller.work()
    for name in ("a", "b", "d"):
        site.until(name, "Planned", f"{name}-1")
    site.until("c", "DoesNotFit")
    assert claims(site.plan("a-1")) == claims(site.plan("d-1")) != claims(site.plan("b-1"))


def test_what_a_pod_that_has_started_requests_counts_once(site: PlansSite) -> None:
    half = {"gpusPerPod": 4, "groupGPUs": 4, "requests": {"cpu": "90", "memory": "1Gi"}}
    site.ask("a", 8, **half)
    site.controller.work()
    site.until("a", "Planned", "a-1")
    (node,) = claims(site.plan("a-1"))
    site.pod("own", node, 4, "a")
    site.api.create(PODS, cpu_pod("of-the-run", node, "90"))
    site.ask("b", 8, **half)
    site.until("b", "Planned", "b-1")
    assert [*claims(site.plan("b-1"))] == [name for name in ("n0", "n1") if name != node]
