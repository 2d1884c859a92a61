"""The JSON of `gkm plan`: fields are added, never renamed. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from gkm.api.node_names import fold_sorted
from gkm.packing.conversion import plan_fragmentation, plan_spec
from gkm.packing.explanation import Explanation
from gkm.packing.fragmentation import Fragmentation, Row
from gkm.packing.usable_nodes import UsableNodes
from gkm.packing.values import Fix, Level, Location, Metrics, Plan, Refusal, Replanned
from gkm.topology.quarantine import Quarantined

from gkm_cli.plan.runs import ParsedRun
from gkm_cli.plan.single_run import RunDecision

Json = dict[str, Any]


def run_result(decision: RunDecision, notes: Sequence[str]) -> Json:
    """Return the result: the spec of its PlacementPlan or the refusal, and the unused nodes."""
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
        "unusedNodes": _counts(usable),
        "excluded": [
            {"reason": reason, "detail": detail, "count": len(names), "nodes": fold_sorted(names)}
            for (reason, detail), names in sorted(nodes_by_reason.items())
        ],
        "quarantined": _quarantined(usable.quarantined),
        "overcommitted": [
            {"node": entry.node, "taken": entry.taken, "total": entry.total} for entry in usable.overcommitted
        ],
    }


def _quarantined(entries: Iterable[Quarantined]) -> list[Json]:
    return [{"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in entries]


def _counts(usable: UsableNodes) -> Json:
    return {why.value: count for why, count in sorted(usable.counts.items())}


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


def _figures(metrics: Metrics | None) -> Json:
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
