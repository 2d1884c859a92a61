"""The status of a Run, from what stands of it: pure functions, and the only writer's words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from gkm.api.grammar import count_of
from gkm.api.meta import API_VERSION, FALSE, TRUE, Condition, with_condition
from gkm.api.plans import PlanSpec
from gkm.api.runs import MAX_FIXES, PlanReference, RunFix, RunStatus
from gkm.hoststate.escaping import escape
from gkm.packing.values import Fix

from gkm_operator.plans.planning.refusals import CONDITION, PlanReason, Unfit
from gkm_operator.plans.state.objects import AGAIN, WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord

MAX_MESSAGE = 2048
_MAX_FIX = 1024
_BOUNDS = {"fewest-domains": "domains", "fewest-blocks": "blocks", "least-waste": "stranded GPUs"}


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """What came of a run: a plan that stands, or expired; or why there is none, or no new one beside it.

    `fixes` is None while nobody has looked for any.
    """

    plan: PlanRecord | None = None
    expired: bool = False
    unfit: Unfit | None = None
    why: str = ""
    fixes: Sequence[Fix] | None = None


def desired_status(run: WatchedRun, standing: RunStatus, came: PlanningResult, now: str) -> RunStatus:
    """Return the status that a run should have; equal to that which is `standing` where nothing is new."""
    value, reason, message = _condition(came)
    condition = Condition(CONDITION, value, reason, escape(message)[:MAX_MESSAGE], now, run.metadata.generation)
    spec = came.plan.spec if came.plan else None
    unfit = came.unfit
    return RunStatus(
        observed_generation=run.metadata.generation,
        plan_ref=PlanReference(came.plan.name) if came.plan else None,
        gpus=spec.gpus if spec else 0,
        domains=spec.metrics.domains if spec else 0,
        binding_level=unfit.level if unfit else "",
        largest_feasible_groups=unfit.largest if unfit else None,
        fixes=_fixes(standing, came, reason),
        conditions=with_condition(standing.conditions, condition),
    )


def differs_in_numbers_only(old: RunStatus, new: RunStatus) -> bool:
    """Return whether two statuses say the same but for numbers: nothing that anybody waits for."""
    before, after = old.condition(CONDITION), new.condition(CONDITION)
    return (
        before is not None
        and after is not None
        and (before.status, before.reason) == (after.status, after.reason)
        and (old.plan_ref, old.binding_level, old.observed_generation)
        == (new.plan_ref, new.binding_level, new.observed_generation)
        and bool(old.fixes) == bool(new.fixes)
    )


def apply_configuration(run: WatchedRun, status: RunStatus, version: str) -> Mapping[str, Any]:
    """Return the object to apply to the status subresource; it counts for this resourceVersion only."""
    meta = run.metadata
    only = {"resourceVersion": version} if version else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": meta.name, "namespace": meta.namespace, **only},
        "status": {"gpus": 0, "domains": 0, **msgspec.to_builtins(status)},
    }


def _condition(came: PlanningResult) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Planned."""
    if came.unfit is not None:
        kept = f"; {came.plan.name} stands" if came.plan and not came.expired else ""
        why = f"{came.why}: " if came.why else ""
        return FALSE, came.unfit.reason, f"{why}{came.unfit.message}{kept}"
    if came.plan is None:
        raise AssertionError("something came of a run: a plan, or why there is none")
    if came.expired:
        when = f"{came.plan.name} expired at {came.plan.spec.expires_at}, and no pod of the run had GPUs then"
        message = f"{when}; others may have them now: annotate the Run with {AGAIN}=<anything new> for a new plan"
        return FALSE, PlanReason.PLAN_EXPIRED, message
    return TRUE, PlanReason.PLANNED, summary(came.plan.spec)


def summary(spec: PlanSpec) -> str:
    """Return what a plan gives, and how far it is from the best that is possible, in one line."""
    metrics, asked = spec.metrics, spec.request
    size = count_of(spec.gpus, "GPU") if spec.gpus == asked.gpus else f"{spec.gpus} of {asked.gpus} GPUs"
    groups = -(-spec.gpus // asked.group_gpus)
    spares = f" with {count_of(asked.spares, 'spare pod')} each" if asked.spares else ""
    elsewhere = f", {metrics.spares_elsewhere} with a spare in another domain" if metrics.spares_elsewhere else ""
    compared = _BOUNDS[spec.policy]
    return (
        f"{size} in {count_of(groups, 'group')}{spares}{elsewhere}: {count_of(metrics.domains, 'domain')} in "
        f"{count_of(metrics.blocks, 'block')}, {count_of(metrics.stranded_gpus, 'GPU')} stranded; "
        f"no plan has fewer than {metrics.lower_bound} {compared} (gap {metrics.gap})"
    )


def _fixes(old: RunStatus, came: PlanningResult, reason: str) -> list[RunFix]:
    if came.unfit is None:
        return []
    if came.fixes is not None:
        return [RunFix(fix.kind.value, escape(fix.sentence)[:_MAX_FIX]) for fix in came.fixes[:MAX_FIXES]]
    # Nobody has looked since: what was found for the same answer stands until somebody does.
    before = old.condition(CONDITION)
    return old.fixes if before is not None and before.reason == reason else []
