"""Indexed Jobs whose pods wait behind the gate of a run: where the plan says their pods go, and where they are."""

from collections.abc import Iterator, Mapping, Sequence

from gkm.api.node_names import unfold
from gkm.api.runs import GATE
from gkm.kube.resources import Json
from support.cluster.cluster import Cluster
from support.operator.plans_site import NAMESPACE

GPU = "nvidia.com/gpu"
INDEX = "batch.kubernetes.io/job-completion-index"


def pod_template(run: str, gpus: int) -> Json:
    """Return a pod of a run that requests `gpus` and has the gate itself."""
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"containers": [container], "restartPolicy": "Never", "schedulingGates": [{"name": GATE}]}
    return {"metadata": {"labels": {"gkm.io/run": run}}, "spec": spec}


def gated_job(run: str, pods: int, gpus: int) -> Json:
    """Return an indexed Job with the name of its run."""
    template = pod_template(run, gpus)
    numbered = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": template}
    meta = {"name": run, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": numbered}


def planned_nodes(plan: Json, gpus: int) -> list[str]:
    """Return the node of each pod by its number; pods request `gpus` each."""
    return [node for group in plan["spec"]["groups"] for node in _nodes_of(group, gpus)]


def _nodes_of(entry: Json, gpus: int) -> Iterator[str]:
    """Yield the nodes of equal groups that a plan states as one entry: each has its part of all names."""
    count = entry.get("count", 1)
    shares = [(unfold(share["name"]), share["gpus"] // gpus) for share in entry["nodes"]]
    for at in range(count):
        for names, pods in shares:
            each = len(names) // count
            for name in names[at * each : (at + 1) * each]:
                yield from [name] * pods


def bound_nodes(cluster: Cluster) -> dict[str, dict[int, str]]:
    """Return the nodes of all pods of runs by run and number; "" for a pod that waits."""
    found: dict[str, dict[int, str]] = {}
    for pod in cluster.objects.every("pods", NAMESPACE, labelSelector="gkm.io/run"):
        labels = pod["metadata"]["labels"]
        found.setdefault(labels["gkm.io/run"], {})[int(labels[INDEX])] = pod["spec"].get("nodeName", "")
    return found


def bound_pods(cluster: Cluster) -> int:
    """Return how many pods of runs have a node."""
    return sum(bool(node) for nodes in bound_nodes(cluster).values() for node in nodes.values())


def in_order(nodes: Mapping[int, str]) -> Sequence[str]:
    """Return the nodes of pods by their numbers."""
    return [nodes[number] for number in sorted(nodes)]
