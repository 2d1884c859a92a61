"""The pods that people copy, by the real scheduler of a mixed cluster."""

import json
from collections.abc import Iterator

import pytest
from support.cluster.cluster import Cluster
from support.docs.sample_pods import pods
from support.peers import require

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real scheduler, and two nodes without a kubelet, of which one has GPUs and the other far more of all else."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("mixed"), scheduler=True) as running:
        for name, resources in (
            ("cpu-node", {"cpu": "256", "memory": "4Ti", "pods": "110"}),
            ("gpu-node", {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "8"}),
        ):
            bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            running.kubectl("create", "--filename", "-", input=json.dumps(bare))
            ready = [{"type": "Ready", "status": "True"}]
            status = {"capacity": resources, "allocatable": resources, "conditions": ready}
            patch = json.dumps({"status": status})
            running.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "--patch", patch)
            # Admission puts it on every new node.
            running.kubectl("patch", "node", name, "--type=merge", "--patch", json.dumps({"spec": {"taints": None}}))
        yield running


def test_a_sample_pod_runs_on_gpu_nodes_of_a_mixed_cluster(mixed: Cluster) -> None:
    pod = pods()[0]
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if not mixed.exists("namespace", namespace):
        mixed.kubectl("create", "namespace", namespace)
    mixed.until(lambda: mixed.exists("serviceaccount", "default", namespace), "a service account")
    mixed.kubectl("create", "--filename", "-", input=json.dumps(pod))
    node = mixed.until(lambda: mixed.get("pod", name, namespace)["spec"].get("nodeName"), "the pod to be bound")
    assert node == "gpu-node"
