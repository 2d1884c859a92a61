"""A plan for programs: the JSON of `gkm plan`, whose fields are added, never renamed; and Jobs for kubectl. Pure.

The pods of a Job may only go to the planned nodes. Each group has one Job, or one for each number of pods on a node if
its nodes take different numbers: the pods of a Job are equal, and no affinity states how many go to which node.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from gkm.api.meta import GROUP
from gkm.api.node_names import fold_sorted
from gkm.api.plans import PlanMetrics
from gkm.api.runs import RUN_LABEL
from gkm.packing.conversion import plan_fragmentation, plan_spec
from gkm.packing.explanation import Explanation
from gkm.packing.fragmentation import Fragmentation, Row
from gkm.packing.inventory import Inventory
from gkm.packing.usable_nodes import UsableNodes
from gkm.packing.values import Fix, Group, Level, Location, Plan, Refusal, Replanned
from gkm.topology.nodes import DEFAULT_TOLERATIONS

from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.single_run import RunDecision

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


def run_result(decision: RunDecision, notes: Sequence[str]) -> Json:
    """Return the result of `gkm plan` for programs: the PlacementPlan's spec or the refusal, and the unused nodes."""
    outcome, explanation = decision.outcome, decision.explanation
    if isinstance(outcome, Refusal):
        result = {"feasible": False, **_refusal(outcome), "fixes": _fixes(decision.fixes)}
    else:
        result = _spec(decision.run, outcome, decision.fragmentation)
        if explanation:
            result["explanation"] = _explanation(explanation)
        if decision.replanned:
            result["replanned"] = _replanned(decision.replanned)
        if decision.fragmentation:
            result["remaining"] = _remaining(decision.fragmentation)
    return result | _unused(decision.usable) | {"notes": [*decision.omitted_fixes, *notes]}


def _unused(usable: UsableNodes) -> Json:
    """Return every node that the run cannot use, with the reason, which often explains a refusal."""
    nodes_by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in usable.excluded:
        nodes_by_reason.setdefault((entry.why.value, entry.detail), []).append(entry.node)
    return {
        "unusedNodes": {why.value: count for why, count in sorted(usable.counts.items())},
        "excluded": [
            {"reason": reason, "detail": detail, "count": len(names), "nodes": fold_sorted(names)}
            for (reason, detail), names in sorted(nodes_by_reason.items())
        ],
        "quarantined": [
            {"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in usable.quarantined
        ],
        "overcommitted": [
            {"node": entry.node, "taken": entry.taken, "total": entry.total} for entry in usable.overcommitted
        ],
    }


def _spec(run: ParsedRun, plan: Plan, fragmentation: Fragmentation | None = None) -> Json:
    found = plan_spec(plan, run.spec.flavor, plan_fragmentation(fragmentation) if fragmentation else None)
    spec: Json = msgspec.to_builtins(msgspec.structs.replace(found, labels=run.spec.labels))
    return spec


def _remaining(fragmentation: Fragmentation) -> Json:
    """Return the fragmentation of every place, by level."""

    def row(found: Row) -> Json:
        return {
            **dict(zip(Location._fields, found.place, strict=False)),
            "freeGPUs": found.free_gpus,
            "expectedUnusableGPUs": found.expected_unusable_gpus,
            "largestGroup": found.largest_group,
        }

    levels = ("regions", "clusters", "blocks", "domains")
    return {level: [row(each) for each in getattr(fragmentation, level)] for level in levels}


def _refusal(refusal: Refusal) -> Json:
    return {
        "reason": "OutsideScopes" if refusal.level is Level.SCOPE else "DoesNotFit",
        "bindingLevel": refusal.level.value,
        "largestFeasibleGroups": refusal.largest_groups,
        "message": refusal.message,
    }


def _fixes(fixes: Iterable[Fix]) -> list[Json]:
    return [
        {"kind": fix.kind.value, "message": fix.sentence, "changes": dict(fix.changes), "least": fix.least}
        for fix in fixes
    ]


def _explanation(explanation: Explanation) -> Json:
    return {
        "alternatives": [
            {"policy": each.policy.value, "chosen": each.chosen, **_figures(each.metrics), "problem": each.problem}
            for each in explanation.alternatives
        ],
        "reasons": list(explanation.reasons),
    }


def _figures(metrics: PlanMetrics | None) -> Json:
    if metrics is None:
        return {}
    return {
        "domains": metrics.domains,
        "blocks": metrics.blocks,
        "strandedGPUs": metrics.stranded_gpus,
        "sparesElsewhere": metrics.spares_elsewhere,
        "pristineDomains": metrics.pristine_domains,
    }


def _replanned(replanned: Replanned) -> Json:
    return {
        "kept": list(replanned.kept),
        "repaired": [
            {
                "group": repair.group,
                "lost": {share.node: share.gpus for share in repair.lost},
                "taken": {share.node: share.gpus for share in repair.taken},
                "spares": repair.spares,
            }
            for repair in replanned.repaired
        ],
        "moved": list(replanned.moved),
        "sparesUsed": replanned.spares_used,
        "reasons": list(replanned.reasons),
    }


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
        "containers": [{"name": "worker", "image": image, "resources": _resources(run, plan)}],
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
