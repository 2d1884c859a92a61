"""The status of a PlacementPlan: whether it is the current plan of its run. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from gkm.api.meta import API_VERSION, FALSE, TRUE, Condition, with_condition
from gkm.api.plans import PlanStatus

from gkm_operator.plans.state.plan_index import PlanRecord

LIVE = "Live"


def desired_plan_status(plan: PlanRecord, current: PlanRecord, now: str, *, over: bool) -> PlanStatus:
    """Return the status that a plan should have; it equals the present one if nothing changes.

    `current` is the newest plan of the run, which holds no GPUs if it is `over`. `now` is a timestamp of the API.
    """
    value, reason, message = live(plan, current, over=over)
    before = [condition for condition in plan.status.conditions if condition.type == LIVE]
    condition = Condition(LIVE, value, reason, message, now, plan.generation)
    return PlanStatus(observed_generation=plan.generation, conditions=with_condition(before, condition))


def live(plan: PlanRecord, current: PlanRecord, *, over: bool) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Live. None of them changes while the plan is current."""
    if plan.number < current.number:
        return FALSE, "Superseded", "the run has a newer plan"
    if over:
        return FALSE, "PlanExpired", "expiresAt has passed, and no pod of the run had GPUs then"
    return TRUE, "Current", "it reserves its GPUs until expiresAt, and while pods of the run use them"


def plan_apply_configuration(plan: PlanRecord, status: PlanStatus) -> Mapping[str, Any]:
    """Return the object to apply to the status subresource; another resourceVersion makes it a conflict."""
    meta = {"name": plan.name, "namespace": plan.run.namespace, "resourceVersion": plan.version}
    return {
        "apiVersion": API_VERSION,
        "kind": "PlacementPlan",
        "metadata": meta,
        "status": msgspec.to_builtins(status),
    }
