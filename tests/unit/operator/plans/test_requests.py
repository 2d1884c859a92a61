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
