"""A plan as Jobs whose pods may only go to the planned nodes. Pure.

Each group has one Job, or one for each number of pods on a node if its nodes take different numbers: the pods of a
Job are equal, and no affinity states how many go to which node. If a node has capacity for more pods than the plan
puts there, a topology spread constraint distributes the pods evenly, which with this number of pods is the plan.

The affinity selects nodes by name (matchFields metadata.name), one term for each: such a requirement has one value
only, and the label kubernetes.io/hostname differs from the name on some clouds.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gkm.api.meta import GROUP
from gkm.api.runs import RUN_LABEL
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Plan
from gkm.topology.nodes import DEFAULT_TOLERATIONS

from gkm_cli.plan.runs import ParsedRun

Json = dict[str, Any]
GROUP_LABEL = "gkm.io/group"
PLAN_ANNOTATION = "gkm.io/plan-hash"
PLACE_ANNOTATION = "gkm.io/place"
SPARES_ANNOTATION = "gkm.io/spare-nodes"
LONGEST_BASE = 36
"""Characters of a Job's name before the group: with group and pod number it is one DNS label (63 characters)."""
GPU = "nvidia.com/gpu"
_JOBS_OWN = frozenset({"job-name", "controller-uid"})
_OWN_PREFIXES = ("batch.kubernetes.io/", f"{GROUP}/")
"""Labels for the owner of a pod, by GKM or by the Job controller. The API server refuses a Job that sets the latter."""


class _JobShape(NamedTuple):
    """Nodes of a group that take `pods` pods each. `even`: a node could take more, so the Job spreads its pods."""

    group: Group
    suffix: str
    nodes: list[str]
    pods: int
    even: bool


def jobs(run: ParsedRun, plan: Plan, inventory: Inventory, image: str) -> Iterator[Json]:
    """Yield the Jobs of a plan, group by group; each can be applied as it is."""
    pod_capacity = {node.name: node.free // plan.request.pod_gpus for node in inventory.nodes}
    for group in plan.groups:
        nodes_by_pods: dict[int, list[str]] = {}
        for name, gpus in group.nodes:
            nodes_by_pods.setdefault(gpus // plan.request.pod_gpus, []).append(name)
        for pods, names in sorted(nodes_by_pods.items(), reverse=True):
            suffix = f"g{group.index}" + (f"-{pods}" if len(nodes_by_pods) > 1 else "")
            # A single node takes all pods in any case.
            even = len(names) > 1 and any(pod_capacity[name] > pods for name in names)
            yield _job(run, plan, _JobShape(group, suffix, names, pods, even), image)


def _job(run: ParsedRun, plan: Plan, shape: _JobShape, image: str) -> Json:
    group, count = shape.group, shape.pods * len(shape.nodes)
    name = f"{_job_prefix(run.name)}-{shape.suffix}"
    labels = {**_inherited_labels(run.spec.labels), RUN_LABEL: run.name, GROUP_LABEL: str(group.index)}
    spare_nodes = ",".join(sorted({spare.node for spare in group.spares}))
    annotations = {PLAN_ANNOTATION: plan.hash, PLACE_ANNOTATION: str(group.place)}
    annotations |= {SPARES_ANNOTATION: spare_nodes} if spare_nodes else {}
    pod: Json = {
        "restartPolicy": "Never",
        "tolerations": _tolerations(run),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [_node_term(node) for node in shape.nodes]
                }
            }
        },
        "containers": [
            {"name": "worker", "image": image, "resources": _resources(run, plan)},
        ],
    }
    if shape.even:
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


def _resources(run: ParsedRun, plan: Plan) -> Json:
    asked = run.spec.requests
    requests = {name: value for name, value in (("cpu", asked.cpu), ("memory", asked.memory)) if value is not None}
    return {"limits": {GPU: str(plan.request.pod_gpus)}} | ({"requests": requests} if requests else {})


def _inherited_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a run for its pods, without those that name an owner."""
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


def _job_prefix(name: str) -> str:
    """Return the name of a run as the prefix of a Job's name: one DNS label, unique for each run."""
    if "." not in name and len(name) <= LONGEST_BASE:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.replace('.', '-')[: LONGEST_BASE - 9].rstrip('-')}-{digest}"
