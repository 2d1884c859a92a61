"""A plan as Kubernetes keeps it without us: Jobs whose pods may only go to the nodes that were planned. Pure.

One Job for each group, or for each number of pods a node where the nodes of a group take different numbers: the pods
of a Job are alike, and no affinity says how many go to which node. Where a node has room for more pods than it is to
take, a topology spread constraint keeps them even, which with as many pods as the plan has is the plan.

A node is named by its name (matchFields metadata.name), one term for each: such a requirement has one value only, and
the label kubernetes.io/hostname is another name on some clouds.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gkm.api.meta import GROUP
from gkm.api.runs import RUN_LABEL
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Plan
from gkm.topology.taints import DEFAULT_TOLERATIONS

from gkm_cli.plan.runs import ParsedRun

Json = dict[str, Any]
GROUP_LABEL = "gkm.io/group"
PLAN_ANNOTATION = "gkm.io/plan-hash"
PLACE_ANNOTATION = "gkm.io/place"
SPARES_ANNOTATION = "gkm.io/spare-nodes"
LONGEST_BASE = 36
"""Characters of a Job's name before its group: that and the number of a pod are one label of DNS (63 characters)."""
GPU = "nvidia.com/gpu"
_JOBS_OWN = frozenset({"job-name", "controller-uid"})
_OWN_PREFIXES = ("batch.kubernetes.io/", f"{GROUP}/")
"""Labels that say whose a pod is, by us or by the Job controller: the API server refuses a Job that forges its own."""


class _JobShape(NamedTuple):
    """Nodes of a group that take `pods` pods each. `even` says that one of them has room for more."""

    group: Group
    suffix: str
    nodes: list[str]
    pods: int
    even: bool


def jobs(run: ParsedRun, plan: Plan, inventory: Inventory, image: str) -> Iterator[Json]:
    """Yield the Jobs of a plan, group after group; every one of them is whole, and can be applied as it is."""
    pod_capacity = {node.name: node.free // plan.request.pod_gpus for node in inventory.nodes}
    for group in plan.groups:
        alike: dict[int, list[str]] = {}
        for name, gpus in group.nodes:
            alike.setdefault(gpus // plan.request.pod_gpus, []).append(name)
        for pods, names in sorted(alike.items(), reverse=True):
            suffix = f"g{group.index}" + (f"-{pods}" if len(alike) > 1 else "")
            # A single node takes all of them in any case.
            even = len(names) > 1 and any(pod_capacity[name] > pods for name in names)
            yield _job(run, plan, _JobShape(group, suffix, names, pods, even), image)


def _job(run: ParsedRun, plan: Plan, part: _JobShape, image: str) -> Json:
    group, count = part.group, part.pods * len(part.nodes)
    name = f"{_base(run.name)}-{part.suffix}"
    labels = {**_passed_on(run.spec.labels), RUN_LABEL: run.name, GROUP_LABEL: str(group.index)}
    spare_nodes = ",".join(sorted({spare.node for spare in group.spares}))
    annotations = {PLAN_ANNOTATION: plan.hash, PLACE_ANNOTATION: str(group.place)}
    annotations |= {SPARES_ANNOTATION: spare_nodes} if spare_nodes else {}
    pod: Json = {
        "restartPolicy": "Never",
        "tolerations": _tolerations(run),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [_node_term(node) for node in part.nodes]
                }
            }
        },
        "containers": [
            {"name": "worker", "image": image, "resources": {"limits": {GPU: str(plan.request.pod_gpus)}}},
        ],
    }
    if part.even:
        pod["topologySpreadConstraints"] = [_spread_constraint({"batch.kubernetes.io/job-name": name})]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **_namespace(run), "labels": labels, "annotations": annotations},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }


def _passed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those labels of a run that its pods may have: none that says whose they are."""
    return {key: value for key, value in labels.items() if key not in _JOBS_OWN and not key.startswith(_OWN_PREFIXES)}


def _namespace(run: ParsedRun) -> Json:
    return {"namespace": run.namespace} if run.namespace else {}


def _node_term(node: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def _spread_constraint(labels: Mapping[str, str]) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }


def _tolerations(run: ParsedRun) -> list[Json]:
    tolerations = DEFAULT_TOLERATIONS if run.spec.tolerations is None else run.spec.tolerations
    fields = ("key", "operator", "value", "effect")
    return [{field: getattr(each, field) for field in fields if getattr(each, field)} for each in tolerations]


def _base(name: str) -> str:
    """Return the name of a run as the beginning of that of a Job: one label, and no two runs have the same."""
    if "." not in name and len(name) <= LONGEST_BASE:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.replace('.', '-')[: LONGEST_BASE - 9].rstrip('-')}-{digest}"
