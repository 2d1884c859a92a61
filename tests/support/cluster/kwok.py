"""Nodes without machines: the real kwok keeps them Ready and runs the pods that the real scheduler places on them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cluster.cluster import Cluster
from support.cluster.control_plane import answers
from support.host import ports
from support.host.processes import Process
from support.peers import build as peers
from support.peers import module_files

Json = dict[str, Any]
MODULE = "sigs.k8s.io/kwok"
ANNOTATION = "kwok.x-k8s.io/node"
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""Without pod-complete: the pods of a Job run until they are deleted, as those of a training do."""


@contextmanager
def kwok(cluster: Cluster, directory: Path) -> Iterator[Process]:
    """Run kwok for the nodes of `node` until the block ends.

    Raises:
        Missing: there is no Go.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stages = directory / "stages.yaml"
    source = module_files.source("kwok", MODULE) / "kustomize" / "stage"
    stages.write_text("\n---\n".join((source / name).read_text() for name in STAGES))
    port = ports.free()
    words = (
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={stages}",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
    )
    process = Process.start("kwok", [peers.binary("kwok"), *words], directory / "kwok.log")
    try:
        process.ready(answers(f"http://127.0.0.1:{port}/healthz"), "/healthz answered")
        yield process
    finally:
        process.stop()


def node(name: str, *, gpus: int = 0, labels: Iterable[tuple[str, str]] = ()) -> Json:
    """Return a Node that kwok runs, with GPUs."""
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "250", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    metadata = {
        "name": name,
        "annotations": {ANNOTATION: "fake"},
        "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **dict(labels)},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def create_nodes(cluster: Cluster, nodes: Iterable[Json]) -> None:
    """Create nodes, and wait until the scheduler may use them: Ready, and without the taint of new nodes."""
    made = list(nodes)
    cluster.apply(made)
    for one in made:
        cluster.objects.merge("node", one["metadata"]["name"], {"spec": {"taints": None}})
    names = {one["metadata"]["name"] for one in made}
    cluster.until(lambda: names <= set(_ready(cluster)), f"{len(names)} nodes to be Ready")


def _ready(cluster: Cluster) -> Iterator[str]:
    for found in cluster.objects.every("nodes"):
        conditions = found.get("status", {}).get("conditions", ())
        is_ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
        if is_ready and not found["spec"].get("taints"):
            yield found["metadata"]["name"]
