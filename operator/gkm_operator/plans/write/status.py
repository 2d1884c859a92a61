"""Compute the status of a Run and of its plans from the result of planning, and the Events of changes. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from gkm.api.grammar import count_of
from gkm.api.meta import API_VERSION, FALSE, TRUE, Condition, with_condition
from gkm.api.plans import STARTED, PlanSpec, PlanStatus
from gkm.api.runs import MAX_FIXES, PlanReference, RunFix, RunStatus
from gkm.hoststate.escaping import escape
from gkm.kube.api import Key
from gkm.kube.events import EventBody

from gkm_operator.plans.planning.assessment import PlanningResult
from gkm_operator.plans.planning.drift import DriftReason, drift_message
from gkm_operator.plans.planning.refusals import CONDITION, PlanReason
from gkm_operator.plans.state.objects import (
    REPLAN_ANNOTATION,
    FollowReason,
    PlanRecord,
    PodsReport,
    WatchedRun,
)

LIVE = "Live"
DRIFT = "Drift"
FOLLOWED = "Followed"
PODS_RAN = "PodsRan"
"""The reason of the condition Started."""
MAX_MESSAGE = 2048
_MAX_FIX = 1024
_BOUNDS = {"fewest-domains": "domains", "fewest-blocks": "blocks", "least-waste": "stranded GPUs"}


def desired_status(
    run: WatchedRun, old: RunStatus, result: PlanningResult, now: str, pods: PodsReport | None
) -> RunStatus:
    """Return the status that a Run should have; it equals `old` without a change. `now` is a timestamp of the API."""
    value, reason, message = _condition(result)
    condition = Condition(CONDITION, value, reason, escape(message)[:MAX_MESSAGE], now, run.metadata.generation)
    planned = with_condition((before for before in old.conditions if before.type == CONDITION), condition)
    spec = result.plan.spec if result.plan else None
    unfit = result.unfit
    return RunStatus(
        observed_generation=run.metadata.generation,
        plan_ref=PlanReference(result.plan.name) if result.plan else None,
        gpus=spec.gpus if spec else 0,
        domains=spec.metrics.domains if spec else 0,
        binding_level=unfit.level if unfit else "",
        largest_feasible_groups=unfit.largest if unfit else None,
        fixes=_fixes(old, result, reason),
        # Planned comes first: people read this condition.
        conditions=[*planned, *_drift_condition(run, old, result, now), *_followed(run, old, pods, now)],
        pods=old.pods if pods is None else pods.counts,
    )


def _followed(run: WatchedRun, old: RunStatus, pods: PodsReport | None, now: str) -> list[Condition]:
    """Return the condition Followed of a run with pods that are followed."""
    before = [each for each in old.conditions if each.type == FOLLOWED]
    if pods is None or pods.reason is None:
        return before if pods is None else []
    value = TRUE if pods.reason is FollowReason.FOLLOWED else FALSE
    message = escape(pods.message)[:MAX_MESSAGE]
    return with_condition(before, Condition(FOLLOWED, value, pods.reason, message, now, run.metadata.generation))


def _drift_condition(run: WatchedRun, old: RunStatus, result: PlanningResult, now: str) -> list[Condition]:
    """Return the condition Drift, which a run has from its first drift on."""
    before = [condition for condition in old.conditions if condition.type == DRIFT]
    if not (result.drift or before):
        return []
    if result.drift and result.plan is not None:
        value, reason, message = TRUE, DriftReason.OUTSIDE, drift_message(result.plan.name, result.drift)
    else:
        value, reason, message = FALSE, DriftReason.FOLLOWED, "no pod of the run holds GPUs that its plan does not name"
    return with_condition(before, Condition(DRIFT, value, reason, message, now, run.metadata.generation))


def differs_in_numbers_only(old: RunStatus, new: RunStatus) -> bool:
    """Return whether two statuses of a Run differ in numbers only, so that the write can wait."""
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
    """Return the object that server-side apply of a Run's status sends, valid only for this resourceVersion."""
    zeros = {"gpus": 0, "domains": 0}
    return _status_object("Run", run.key, version, zeros | msgspec.to_builtins(status))


def _condition(result: PlanningResult) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Planned."""
    if result.unfit is not None:
        current = f"; {result.plan.name} stays current" if result.plan and not result.expired else ""
        cause = f"{result.message}: " if result.message else ""
        return FALSE, result.unfit.reason, f"{cause}{result.unfit.message}{current}"
    if result.plan is None:
        raise AssertionError("the result of a run has no plan and no refusal")
    if result.expired:
        when = f"{result.plan.name} expired at {result.plan.spec.expires_at}, and {_idle(result.plan)}"
        again = f"annotate the Run with {REPLAN_ANNOTATION}=<any new value> for a new plan"
        no_hold = f"{again}, which holds no GPUs, or delete the Run and create it again to wait for GPUs anew"
        advice = again if result.plan.started else no_hold
        return FALSE, PlanReason.PLAN_EXPIRED, f"{when}; other runs may use them now: {advice}"
    return TRUE, PlanReason.PLANNED, summary(result.plan.spec)


def summary(spec: PlanSpec) -> str:
    """Return one line with the sizes of a plan, and how far the plan may be from the best plan."""
    metrics, request = spec.metrics, spec.request
    size = count_of(spec.gpus, "GPU") if spec.gpus == request.gpus else f"{spec.gpus} of {request.gpus} GPUs"
    groups = -(-spec.gpus // request.group_gpus)
    spares = f" with {count_of(request.spares, 'spare pod')} each" if request.spares else ""
    elsewhere = f", {metrics.spares_elsewhere} with a spare in another domain" if metrics.spares_elsewhere else ""
    compared = _BOUNDS[spec.policy]
    return (
        f"{size} in {count_of(groups, 'group')}{spares}{elsewhere}: {count_of(metrics.domains, 'domain')} in "
        f"{count_of(metrics.blocks, 'block')}, {count_of(metrics.stranded_gpus, 'GPU')} stranded; "
        f"no plan has fewer than {metrics.lower_bound} {compared} (gap {metrics.gap})"
    )


def _fixes(old: RunStatus, result: PlanningResult, reason: str) -> list[RunFix]:
    if result.unfit is None:
        return []
    if result.fixes is not None:
        return [RunFix(fix.kind.value, escape(fix.sentence)[:_MAX_FIX]) for fix in result.fixes[:MAX_FIXES]]
    # The planner has not searched again: the fixes of the same reason stay until it does.
    before = old.condition(CONDITION)
    return old.fixes if before is not None and before.reason == reason else []


def desired_plan_status(
    plan: PlanRecord, current: PlanRecord, now: str, *, over: bool, started: bool = False
) -> PlanStatus:
    """Return the status that a PlacementPlan should have.

    `current` is the newest plan of the run, which holds no GPUs if it is `over`. The condition Started never ends.
    `now` is a timestamp of the API.
    """
    conditions = [condition for condition in plan.status.conditions if condition.type in {LIVE, STARTED}]
    value, reason, message = live(plan, current, over=over)
    conditions = with_condition(conditions, Condition(LIVE, value, reason, message, now, plan.generation))
    if started and not plan.started:
        condition = Condition(STARTED, TRUE, PODS_RAN, "a pod of the run has had GPUs", now, plan.generation)
        conditions = with_condition(conditions, condition)
    return PlanStatus(observed_generation=plan.generation, conditions=conditions)


def live(plan: PlanRecord, current: PlanRecord, *, over: bool) -> tuple[str, str, str]:
    """Return status, reason and message of a plan's condition Live; `over`: it holds no GPUs any more."""
    if plan.number < current.number:
        return FALSE, "Superseded", "the run has a newer plan"
    if over:
        return FALSE, "PlanExpired", f"expiresAt has passed, and {_idle(plan)}"
    return TRUE, "Current", "it reserves its GPUs until expiresAt, and while pods of the run use them"


def _idle(plan: PlanRecord) -> str:
    return f"no pod of the run {'has GPUs any more' if plan.started else 'has had GPUs'}"


def plan_apply_configuration(plan: PlanRecord, status: PlanStatus) -> Mapping[str, Any]:
    """Return the object that a server-side apply of a plan's status sends, valid only for the version that was read."""
    return _status_object("PlacementPlan", plan.key, plan.version, msgspec.to_builtins(status))


def _status_object(kind: str, key: Key, version: str, status: Mapping[str, Any]) -> Mapping[str, Any]:
    namespace, name = key
    meta = {"name": name, "namespace": namespace} | ({"resourceVersion": version} if version else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "status": status}


PLAN = "Plan"
SUPERSEDED = "Superseded"

_RECENT = timedelta(minutes=2)


def plan_events(plan: PlanRecord) -> Iterator[EventBody]:
    """Yield the Events on the Run for its new plan."""
    spec = plan.spec
    yield EventBody("Normal", PlanReason.PLANNED, PLAN, f"{plan.name}: {summary(spec)}")
    if spec.supersedes:
        yield EventBody("Normal", SUPERSEDED, PLAN, f"{plan.name} supersedes {spec.supersedes}: {spec.reason}")


def is_recent(plan: PlanRecord, now: datetime) -> bool:
    """Return whether a plan is younger than two minutes: its creator may have died before it sent the Events."""
    if not plan.created:
        return False
    return now - datetime.fromisoformat(plan.created) <= _RECENT


def refusal_event(old: RunStatus, new: RunStatus) -> EventBody | None:
    """Return the Event if a Run's condition Planned became False or changed its reason while False; else None."""
    before, after = old.condition(CONDITION), new.condition(CONDITION)
    if after is None or after.status == TRUE or (before is not None and before.reason == after.reason):
        return None
    return EventBody("Warning", after.reason, PLAN, after.message)
