"""A cluster with Kueue, the controllers of GKM, the real scheduler and nodes of kwok; Jobs request domains."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.topology.controllers import controllers
from support.topology.kueue import kueue

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
GPUS_OF_A_NODE = 8
FLAVOR, QUEUE, TOPOLOGY = "gpus", "team", "gkm"
API = "kueue.x-k8s.io/v1beta2"
_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
_LABEL = ("gkm.io/gpu-flavor", "h100")
"""A flavor with a topology must select its nodes."""


@dataclass(frozen=True)
class KueueCluster:
    """The cluster. Its queue reads the Topology that the controllers write."""

    cluster: Cluster
    nodes: tuple[str, ...]
    _numbers: Iterator[int]

    @classmethod
    @contextmanager
    def start(cls, directory: Path, nodes: tuple[str, ...], levels: Sequence[str]) -> Iterator["KueueCluster"]:
        """Start everything. The nodes have 8 GPUs each; the label of a level is its name."""
        with ExitStack() as stack:
            cluster = stack.enter_context(Cluster.start(directory / "cluster", scheduler=True))
            stack.enter_context(kwok.kwok(cluster, directory / "kwok"))
            stack.enter_context(kueue(cluster, directory / "kueue"))
            made = [kwok.node(name, gpus=GPUS_OF_A_NODE, labels=[_LABEL]) for name in nodes]
            kwok.create_nodes(cluster, made)
            stack.enter_context(controllers(cluster, directory / "gkm", _topology(levels)))
            cluster.apply(list(queues(GPUS_OF_A_NODE * len(nodes), dict([_LABEL]))))
            started = cls(cluster, nodes, itertools.count(1))
            until_active(cluster)
            yield started

    def label(self, node: str, **labels: str) -> None:
        """Give a node labels, as its owner does; an empty value removes one."""
        words = [f"{key}={value}" if value else f"{key}-" for key, value in labels.items()]
        self.cluster.kubectl("label", "node", node, "--overwrite", *words)

    def labels(self, key: str) -> dict[str, str]:
        """Return the values of a label of the nodes, "" without one."""
        found = {one["metadata"]["name"]: one["metadata"]["labels"] for one in self.cluster.objects.every("nodes")}
        return {node: found[node].get(key, "") for node in self.nodes}

    @contextmanager
    def job(self, pods: int, level: str, plan: Sequence[str] = ()) -> Iterator[str]:
        """Create a Job of `pods` that fill a node each and must lie in one domain of the label `level`; yield its name.

        With a `plan`, the pods have the affinity to its nodes that `gkm plan -o manifests` writes. At the end it and
        its pods are gone, and Kueue counts them no more.
        """
        name = f"job-{next(self._numbers)}"
        job = _job(name, pods, level)
        if plan:
            job["spec"]["template"]["spec"]["affinity"] = _affinity(plan)
        self.cluster.apply(job)
        try:
            yield name
        finally:
            self.cluster.kubectl("delete", "job", name, "--cascade=foreground", "--wait=true")
            self.cluster.until(lambda: not self._pods(name) and not self._workload(name), f"nothing of {name} is left")

    def nodes_of(self, job: str, pods: int) -> list[str]:
        """Wait until the pods of a Job run; return their nodes."""

        def probe() -> list[str] | None:
            running = [pod["spec"]["nodeName"] for pod in self._pods(job) if pod["status"]["phase"] == "Running"]
            return sorted(running) if len(running) == pods else None

        return self.cluster.until(probe, f"{pods} pods of {job} to run")

    def refusal(self, job: str) -> str:
        """Wait until Kueue has decided that a Job must wait; return why."""

        def probe() -> str | None:
            conditions = self._workload(job).get("status", {}).get("conditions", ())
            reserved = [one for one in conditions if (one["type"], one["status"]) == ("QuotaReserved", "False")]
            return str(reserved[0]["message"]) if reserved else None

        return self.cluster.until(probe, f"{job} to be refused")

    def _pods(self, job: str) -> list[Json]:
        return self.cluster.objects.every("pods", "default", labelSelector=f"batch.kubernetes.io/job-name={job}")

    def _workload(self, job: str) -> Json:
        """Return Kueue's object of a Job, {} if there is none."""
        for workload in self.cluster.objects.every("workloads", "default"):
            if job in [owner["name"] for owner in workload["metadata"].get("ownerReferences", ())]:
                return workload
        return {}


def _topology(levels: Sequence[str]) -> Json:
    """Return settings whose guard is off: tests move many of few nodes."""
    return {
        "levels": [{"name": level, "keys": [level]} for level in levels],
        "kueue": TOPOLOGY,
        "nodeLabels": True,
        "guard": {"percent": 100, "minimum": 1000},
    }


def until_active(cluster: Cluster) -> None:
    """Wait until the queue admits workloads."""

    def active() -> bool:
        found = cluster.objects.get("clusterqueue", QUEUE).get("status", {}).get("conditions", ())
        return any((one["type"], one["status"]) == ("Active", "True") for one in found)

    cluster.until(active, "the queue to be active")


def queues(
    gpus: int, labels: Mapping[str, str], *, namespace: str = "default", topology: str = TOPOLOGY
) -> Iterator[Json]:
    """Yield a flavor of the nodes with `labels`, with a Topology unless that is "", and a queue with so many GPUs."""
    spec: Json = {"nodeLabels": dict(labels)} | ({"topologyName": topology} if topology else {})
    yield {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}, "spec": spec}
    resources = [{"name": GPU, "nominalQuota": gpus}]
    group = {"coveredResources": [GPU], "flavors": [{"name": FLAVOR, "resources": resources}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec}
    metadata = {"name": QUEUE, "namespace": namespace}
    yield {"apiVersion": API, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": QUEUE}}


def _job(name: str, pods: int, level: str) -> Json:
    limits = {"limits": {GPU: str(GPUS_OF_A_NODE)}}
    container = {"name": "main", "image": "registry.test/train:1", "resources": limits}
    template = {
        "metadata": {"annotations": {_REQUIRED: level}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    metadata = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": template},
    }


def _affinity(nodes: Sequence[str]) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
