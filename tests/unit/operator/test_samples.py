"""The pods that people copy: those of deploy/samples and of README."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.cluster import Cluster
from support.peers import require

ROOT = Path(__file__).resolve().parents[3]
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def pods() -> list[Json]:
    """Every pod with a volume of ours in the samples and in README."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "deploy" / "samples").glob("*.yaml"))]
    texts += re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    found = [document for text in texts for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    return [document for document in found if document.get("kind") == "Pod" and mounts(document)]


def mounts(pod: Json) -> bool:
    return any(volume.get("csi", {}).get("driver") == "csi.gkm.io" for volume in pod["spec"].get("volumes", []))


def test_the_pod_of_readme_is_that_of_the_samples() -> None:
    sample, readme = pods()
    assert sample == readme


def test_a_sample_pod_requests_a_gpu() -> None:
    pod = pods()[0]
    asked = [container.get("resources", {}).get("limits", {}).get(GPU) for container in pod["spec"]["containers"]]
    assert asked == [1]


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


@pytest.mark.partners
def test_a_sample_pod_runs_on_gpu_nodes_of_a_mixed_cluster(mixed: Cluster) -> None:
    pod = pods()[0]
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if not mixed.exists("namespace", namespace):
        mixed.kubectl("create", "namespace", namespace)
    mixed.until(lambda: mixed.exists("serviceaccount", "default", namespace), "a service account")
    mixed.kubectl("create", "--filename", "-", input=json.dumps(pod))
    node = mixed.until(lambda: mixed.get("pod", name, namespace)["spec"].get("nodeName"), "the pod to be bound")
    assert node == "gpu-node"
