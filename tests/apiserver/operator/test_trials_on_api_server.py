"""Which pods failed, and with which generation, as a real API server tells the controllers under their rights."""

from collections.abc import Iterator

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, Json, Resource
from gkm_operator.captures.trials import FailedPods
from support.cluster.cluster import Cluster
from support.kube.our_kinds import CONTROLLERS

NAMESPACES = {False: "trials", True: "trials-shared"}
"""By whether the caches are those of the cluster."""
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
NODES = ("trial-a", "trial-b")


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    for namespace in NAMESPACES.values():
        gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        gkm_cluster.until(lambda name=namespace: gkm_cluster.exists("serviceaccount", "default", name), "an account")  # type: ignore[misc]
    gkm_cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in NODES])
    yield gkm_cluster
    gkm_cluster.kubectl("delete", "clustergkmcachenodes", *NODES, "--ignore-not-found")
    for namespace in NAMESPACES.values():
        gkm_cluster.objects.ask_to_delete("namespace", namespace)
    gkm_cluster.kubectl("delete", "node", *NODES)


def made(cluster: Cluster, namespace: str, name: str, node: str, code: int) -> None:
    """Create a pod whose container has ended, as its kubelet writes it."""
    api = connect(str(cluster.kubeconfig))
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "registry.test/x:1"}]}
    api.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    )
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z"}
    container = {
        "name": "c",
        "image": "i",
        "imageID": "i",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code, **times}},
    }
    status = {"status": {"phase": "Running", "containerStatuses": [container]}}
    api.merge(PODS, name, status, namespace, subresource="status")


@pytest.mark.parametrize("shared", [False, True], ids=["GKMCache", "ClusterGKMCache"])
def test_failed_pods_are_counted_for_what_their_nodes_say_they_mount(place: Cluster, *, shared: bool) -> None:
    api, namespace = connect(str(place.kubeconfig)), NAMESPACES[shared]
    kind = (CLUSTERGKMCACHENODES if shared else GKMCACHENODES).of(dict)
    for node in NODES:
        made(place, namespace, f"failed-{node}", node, 1)
        made(place, namespace, f"failed-too-{node}", node, 139)
        made(place, namespace, f"well-{node}", node, 0)
        metadata = {"name": node} | ({} if shared else {"namespace": namespace})
        report = {"apiVersion": "gkm.io/v1alpha1", "kind": kind.kind, "metadata": metadata, "spec": {"nodeName": node}}
        api.create(kind, report)
        digest = f"sha256:{'1' * 64}"
        pods = [
            {"namespace": namespace, "name": f"{name}-{node}", "volumeId": f"csi-{name}", "digest": digest}
            for name in ("failed", "failed-too", "well")
        ]
        caches = {
            "newer": {"state": "Ready", "pods": pods[:1] + pods[2:]},
            "older": {"state": "Ready", "pods": pods[1:2]},
        }
        api.merge(kind, node, {"status": {"caches": caches}}, metadata.get("namespace"), subresource="status")
    controllers = connect(str(place.kubeconfig_for(CONTROLLERS)))
    assert FailedPods(controllers).by_cache(namespace, cluster=shared) == {"newer": 2, "older": 2}
