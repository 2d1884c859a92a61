"""Pods behind gates, and the controllers that plan and place them, against an API in memory."""

from collections.abc import Iterator

import pytest
from gkm.api.runs import GATE
from gkm.kube.resources import NODES, Json
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.operator.gates import ControllersProcess
from support.operator.nodes import put
from support.operator.plans import NAMESPACE, PODS, RAW_PLANS, RAW_RUNS, everything, gpu_node, gpu_pod, run

HOSTNAME = "kubernetes.io/hostname"
LABELS = {"fabric.domain": "d0", "block": "b1", "gpu.flavor": "H100"}


def cluster() -> FakeApi:
    """Return a cluster of two nodes with a run of both."""
    made = FakeApi()
    for name in ("n0", "n1"):
        put(made, NODES, gpu_node(name, "d0") | {"metadata": {"name": name, "labels": LABELS | {HOSTNAME: name}}})
    made.create(RAW_RUNS, run("r", 16, groupGPUs=8))
    return made


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Return a cluster with the controllers at work."""
    made = cluster()
    process = ControllersProcess(made)
    process.work()
    until(lambda: reason(made, "r") == "Planned", "the run has a plan")
    yield made
    process.close()


def reason(api: FakeApi, name: str) -> str:
    conditions = api.get(RAW_RUNS, name, NAMESPACE).get("status", {}).get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Planned"), "")


def pods(api: FakeApi, *names: str, gpus: int = 8, node: str = "") -> None:
    """Create pods of the run, with the gate unless they have a node."""
    for name in names:
        pod = gpu_pod(name, node, gpus, "r")
        if not node:
            pod["spec"] = {"containers": pod["spec"]["containers"], "schedulingGates": [{"name": GATE}]}
        api.create(PODS, pod)


def hosts(api: FakeApi) -> list[str]:
    """The nodes of the pods that had a gate."""
    found: list[Json] = [pod["spec"] for pod in everything(api, PODS) if "nodeName" not in pod["spec"]]
    return sorted(spec.get("nodeSelector", {}).get(HOSTNAME, "") for spec in found)


def expire(api: FakeApi) -> None:
    api.merge(RAW_PLANS, "r-1", {"spec": {"expiresAt": "2020-01-01T00:00:00Z"}}, NAMESPACE)
    until(lambda: reason(api, "r") == "PlanExpired", "the plan has expired")


def test_pods_that_come_after_the_plan_of_their_run_expired_get_another_one(api: FakeApi) -> None:
    expire(api)
    pods(api, "p0", "p1")
    until(lambda: hosts(api) == ["n0", "n1"], "pods behind a plan that expired before they came have nodes")
    plan = api.get(RAW_PLANS, "r-2", NAMESPACE)["spec"]
    assert plan["reason"] == "r-1 expired, and pods wait behind the gate"
    assert plan["expiresAt"] > api.get(RAW_PLANS, "r-1", NAMESPACE)["spec"]["expiresAt"]


def test_the_gpus_of_an_expired_plan_go_to_the_run_that_came_before_its_pods(api: FakeApi) -> None:
    expire(api)
    api.create(RAW_RUNS, run("other", 16))
    until(lambda: reason(api, "other") == "Planned", "the other run has the GPUs")
    pods(api, "p0", "p1")
    until(lambda: reason(api, "r") == "DoesNotFit", "the run waits in its turn")
    assert hosts(api) == ["", ""]
    api.delete(RAW_RUNS, "other", NAMESPACE)
    until(lambda: hosts(api) == ["n0", "n1"], "the run has its turn")


def test_a_pod_without_gpus_takes_no_place_of_the_plan_and_is_not_astray(api: FakeApi) -> None:
    pods(api, "launcher", gpus=0, node="n0")
    pods(api, "worker-0", "worker-1")
    until(lambda: "" not in hosts(api) or counts(api) == {"followed": 1, "waiting": 2}, "the workers are decided about")
    assert hosts(api) == ["n0", "n1"], "a pod without GPUs has the place of one with GPUs"
    pods(api, "monitor", gpus=0, node="elsewhere")
    until(lambda: counts(api) == {"waiting": 2}, "only pods with GPUs count")


def test_a_new_leader_keeps_what_the_status_says_of_pods_until_it_has_looked() -> None:
    api = cluster()
    pods(api, "p0")
    first = ControllersProcess(api)
    first.work()
    until(lambda: counts(api) == {"waiting": 1}, "the pod counts")
    first.close()
    successor = ControllersProcess(api)
    successor.plans.work()
    try:
        api.create(RAW_RUNS, run("other", 4096))
        until(lambda: reason(api, "other") == "DoesNotFit", "the successor has worked")
        assert counts(api) == {"waiting": 1}, "a leader that has not looked at pods says that there are none"
        successor.gates.work()
        api.delete(PODS, "p0", NAMESPACE)
        until(lambda: counts(api) == {}, "no pod is left")
    finally:
        successor.close()


def counts(api: FakeApi) -> Json:
    found: Json = api.get(RAW_RUNS, "r", NAMESPACE).get("status", {}).get("pods", {})
    return found
