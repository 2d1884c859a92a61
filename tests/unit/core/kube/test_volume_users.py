"""The pods that need GKM: those with its volumes, and those behind its gate."""

from typing import Any

import pytest
from gkm.api.runs import GATE
from gkm.kube.resources import Json, Resource
from gkm.kube.volume_users import explanation, gated_pods, pods_with_volumes
from support.kube.fake_api import FakeApi

PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=Json)


def pod(name: str, phase: str = "Pending", **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def test_pods_behind_our_gate_are_found_and_those_behind_others_are_not() -> None:
    api = FakeApi()
    gates = {"gated": [GATE], "both": ["kueue.x-k8s.io/admission", GATE], "other": ["kueue.x-k8s.io/admission"]}
    for name, names in gates.items():
        api.create(PODS, pod(name, schedulingGates=[{"name": gate} for gate in names]))
    api.create(PODS, pod("free"))
    api.create(PODS, pod("user", "Running", nodeName="n", volumes=[{"name": "c", "csi": {"driver": "csi.gkm.io"}}]))
    assert sorted(gated_pods(api)) == [("team", "both"), ("team", "gated")]
    assert list(pods_with_volumes(api)) == [("team", "user")]


BEHIND = "behind the scheduling gate gkm.io/placement, which only the controllers remove:"
REMOVE = "delete them or remove the gate (docs/features/placement.md), then uninstall again"
USES = "1 pod uses volumes of GKM, which only its CSI driver can unmount: a/u; delete them or let them end"


@pytest.mark.parametrize(
    ("users", "gated", "said"),
    [
        ([], [], "no pod uses a volume of GKM"),
        ([], [("a", "x"), ("b", "y")], f"2 pods wait {BEHIND} a/x, b/y; {REMOVE}"),
        ([("a", "u")], [("a", "x")], f"{USES}. 1 pod waits {BEHIND} a/x; {REMOVE}"),
    ],
)
def test_the_message_says_what_each_pod_needs(
    users: list[tuple[str, str]], gated: list[tuple[str, str]], said: str
) -> None:
    assert explanation(users, gated) == said
