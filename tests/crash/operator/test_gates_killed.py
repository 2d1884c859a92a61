"""Controllers killed at every write: no pod of a run starts half, and each has the node that the plan says.

Half is a pod without its gate and without a node while its run has a plan, or a node with the gate still there. Both
are judged at the request that writes the pod, so no other process can hide them.
"""

import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from gkm.api.runs import GATE
from gkm.kube.api import Object
from gkm.kube.resources import NODES, Json, Resource
from support.host.waiting import until
from support.kube.dying_api import DyingApi
from support.kube.fake_api import FakeApi
from support.operator.gated_jobs import INDEX, planned_nodes
from support.operator.gates import ControllersProcess
from support.operator.nodes import put
from support.operator.plans import NAMESPACE, PODS, RAW_PLANS, RAW_RUNS, everything, gpu_node, gpu_pod, newest, run

T = TypeVar("T")
GPUS, PODS_OF_RUN = 8, 3
HOSTNAME = "kubernetes.io/hostname"


class Witness(FakeApi):
    """An API that remembers each pod as a request left it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[bool, str]] = []

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        found = super().merge(resource, name, patch, namespace, subresource=subresource)
        if resource.plural == PODS.plural:
            self.written.append(form(self.get(PODS, name, namespace)))
        return found


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A killed thread prints its exception, which is expected here.
    monkeypatch.setattr("threading.excepthook", lambda _args: None)
    before = set(threading.enumerate())
    yield
    until(lambda: not set(threading.enumerate()) - before, "all threads to end")


def gated_run(*, numbered: bool) -> Witness:
    """Return a cluster with a run, its pods behind gates, and more nodes than they need."""
    api = Witness()
    for number in range(PODS_OF_RUN + 1):
        node = gpu_node(f"n{number}", "d0", GPUS)
        node["metadata"]["labels"][HOSTNAME] = f"host-{number}"
        put(api, NODES, node)
    for number in range(PODS_OF_RUN):
        pod = gpu_pod(f"p{number}", "", GPUS, "r")
        pod["spec"] = {"containers": pod["spec"]["containers"], "schedulingGates": [{"name": GATE}]}
        if numbered:
            pod["metadata"]["labels"][INDEX] = str(number)
        api.create(PODS, pod)
    api.create(RAW_RUNS, run("r", GPUS * PODS_OF_RUN, groupGPUs=GPUS, gpusPerPod=GPUS))
    return api


def form(pod: Json) -> tuple[bool, str]:
    """Return whether a pod has the gate, and the host that it names."""
    return bool(pod["spec"].get("schedulingGates")), pod["spec"].get("nodeSelector", {}).get(HOSTNAME, "")


def hosts(api: Witness) -> list[str]:
    """Return the hosts of the pods that are free, by their names."""
    forms = [form(pod) for pod in everything(api, PODS)]
    return [host for gated, host in forms if not gated]


def is_reported(api: Witness) -> bool:
    """Return whether the Run says that its pods have no node yet: the last write of a process."""
    found: dict[str, Any] = api.get(RAW_RUNS, "r", NAMESPACE).get("status", {})
    return len(hosts(api)) == PODS_OF_RUN and found.get("pods") == {"waiting": PODS_OF_RUN}


def work_until_killed(api: Witness, dying: DyingApi) -> bool:
    """Let a process work until it dies or has done its work; return whether it died."""
    process = ControllersProcess(dying)
    process.work()
    try:
        until(lambda: dying.dead or is_reported(api), "it dies or has worked")
    finally:
        process.close()
    return dying.dead


def finish(api: Witness) -> None:
    """Let another process work, and judge each pod."""
    successor = ControllersProcess(api)
    successor.work()
    try:
        until(lambda: is_reported(api), "the successor has worked")
    finally:
        successor.close()
    assert len(api.written) == PODS_OF_RUN, "each pod is written once"
    assert all(not gated and host for gated, host in api.written), api.written
    plan = newest(everything(api, RAW_PLANS))[NAMESPACE, "r"]
    assert hosts(api) == [f"host-{node.removeprefix('n')}" for node in planned_nodes(plan, GPUS)]


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by-name"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_controllers_killed_at_every_write_leave_no_pod_half(before: bool, numbered: bool) -> None:  # noqa: FBT001 -- parameters
    deaths = -1
    died = True
    while died:
        deaths += 1
        api = gated_run(numbered=numbered)
        died = work_until_killed(api, DyingApi(api, 1 + deaths, before=before))
        finish(api)
    assert deaths > PODS_OF_RUN


@pytest.mark.parametrize(("before", "placed"), [(True, [0, 1, 2, 3]), (False, [1, 2, 3, 3])], ids=["before", "after"])
def test_controllers_killed_between_two_pods_leave_the_others_gated(before: bool, placed: list[int]) -> None:  # noqa: FBT001 -- a parameter
    found: list[int] = []
    for number in range(1, PODS_OF_RUN + 2):
        api = gated_run(numbered=True)
        work_until_killed(api, DyingApi(api, number, before=before, plural=PODS.plural))
        found.append(len(hosts(api)))
        finish(api)
    assert found == placed
