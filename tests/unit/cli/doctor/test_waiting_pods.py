"""Pods that wait for a volume of GKM, and caches that no node can use."""

from typing import Any

import pytest
from gkm.api.caches import GKMCache
from gkm_cli.doctor.installation import caches, waiting
from gkm_cli.doctor.installation.objects import WaitingPod
from msgspec import convert
from support.cli.observations import OLD, YOUNG, briefly, observed

CSI = {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "llama"}}


def waiting_pod(
    name: str,
    *,
    created: str = OLD,
    csi: dict[str, Any] | None = None,
    reason: str = "ContainerCreating",
    **status: Any,  # noqa: ANN401 -- fields of the status
) -> WaitingPod:
    metadata = {"name": name, "namespace": "ml-apps", "creationTimestamp": created}
    statuses = [{"name": "server", "state": {"waiting": {"reason": reason}}}]
    volumes = [{"name": "kernels", "csi": csi or CSI}, {"name": "tmp", "emptyDir": {}}]
    made = {"metadata": metadata, "spec": {"nodeName": "n", "volumes": volumes}}
    return convert(made | {"status": {"phase": "Pending", "containerStatuses": statuses, **status}}, WaitingPod)


def test_pods_that_hang_for_one_cache_are_one_problem_with_the_command_that_says_why() -> None:
    pods = [waiting_pod("a"), waiting_pod("b"), waiting_pod("c", csi={"driver": "csi.gkm.io"})]
    by_cache, unnamed = waiting.pods(observed(waiting_pods=pods))
    assert (by_cache.severity.value, by_cache.object) == ("problem", "Namespace ml-apps")
    assert by_cache.detail == "pods wait for a volume of GKMCache llama: a, b"
    assert by_cache.hint == "gkm why a -n ml-apps names the link that is broken"
    assert "no cache" in unnamed.detail


@pytest.mark.parametrize(
    "pod",
    [
        waiting_pod("young", created=YOUNG),
        waiting_pod("other", csi={"driver": "csi.example"}),
        waiting_pod("pulls", reason="ImagePullBackOff"),
        waiting_pod("gated", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
    ],
    ids=lambda pod: pod.metadata.name,
)
def test_a_pod_that_waits_for_something_else_is_no_finding(pod: WaitingPod) -> None:
    assert list(waiting.pods(observed(waiting_pods=[pod]))) == []


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        ({"waiting": {"reason": "PodInitializing"}}, True),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, False),
        ({"running": {}}, False),
        ({"terminated": {"exitCode": 0}}, False),
    ],
)
def test_a_pod_with_init_containers_waits_until_the_first_of_them_is_started(
    state: dict[str, Any], *, waits: bool
) -> None:
    pod = waiting_pod("a", reason="PodInitializing", initContainerStatuses=[{"name": "first", "state": state}])
    found = list(waiting.pods(observed(waiting_pods=[pod])))
    assert bool(found) is waits, "kubelet gives PodInitializing, not ContainerCreating, to pods with init containers"


def test_a_pod_without_a_node_has_the_words_of_the_scheduler() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    (found,) = waiting.pods(observed(waiting_pods=[waiting_pod("a", conditions=[condition])]))
    assert "0/3 nodes" in found.why


@pytest.mark.parametrize(
    ("reason", "changed", "expected"),
    [
        ("NodesIncompatible", OLD, [("problem", "GKMCache ml-apps/llama")]),
        ("NoMatchingNodes", OLD, [("problem", "GKMCache ml-apps/llama")]),
        ("NodesIncompatible", YOUNG, []),
        ("NodesPending", OLD, []),
    ],
)
def test_a_cache_that_fits_no_node_is_a_problem(reason: str, changed: str, expected: list[tuple[str, str]]) -> None:
    condition = {"type": "Ready", "status": "False", "reason": reason, "message": "m", "lastTransitionTime": changed}
    made = {
        "kind": "GKMCache",
        "metadata": {"name": "llama", "namespace": "ml-apps"},
        "spec": {"image": "registry.example/team/caches/llama:1"},
        "status": {"image": "registry.example/team/caches/llama:1", "conditions": [condition]},
    }
    found = list(caches.without_node(observed(caches=[convert(made, GKMCache)])))
    assert briefly(iter(found)) == expected
    assert all("NodesIncompatible" in each.detail or "NoMatchingNodes" in each.detail for each in found)
