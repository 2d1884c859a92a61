"""Events about a Run, from the change of its status. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gkm.api.meta import TRUE
from gkm.api.runs import RunStatus
from gkm.kube.events import EventBody

from gkm_operator.plans.planning.refusals import CONDITION, PlanReason
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.write.status import summary

PLAN = "Plan"
SUPERSEDED = "Superseded"

_RECENT = timedelta(minutes=2)


def plan_events(plan: PlanRecord) -> Iterator[EventBody]:
    """Yield the events of a new plan; its name is their occasion."""
    spec = plan.spec
    yield EventBody("Normal", PlanReason.PLANNED, PLAN, f"{plan.name}: {summary(spec)}")
    if spec.supersedes:
        yield EventBody("Normal", SUPERSEDED, PLAN, f"{plan.name} supersedes {spec.supersedes}: {spec.reason}")


def is_recent(plan: PlanRecord, now: datetime) -> bool:
    """Return whether a plan is younger than two minutes: its creator may have died before it sent the events."""
    if not plan.created:
        return False
    return now - datetime.fromisoformat(plan.created) <= _RECENT


def refusal_event(old: RunStatus, new: RunStatus) -> EventBody | None:
    """Return the event for a condition Planned that became False with another reason, None without such a change."""
    before, after = old.condition(CONDITION), new.condition(CONDITION)
    if after is None or after.status == TRUE or (before is not None and before.reason == after.reason):
        return None
    return EventBody("Warning", after.reason, PLAN, after.message)
