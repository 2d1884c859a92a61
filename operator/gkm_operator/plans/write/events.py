"""What is told about a Run, as Events: what its status says now and did not say before. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gkm.api.meta import API_VERSION, TRUE
from gkm.api.runs import RunStatus
from gkm.kube.events import EventBody, Regarding

from gkm_operator.plans.planning.refusals import CONDITION, PlanReason
from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.write.status import summary

PLAN = "Plan"
SUPERSEDED = "Superseded"

_MOMENT = timedelta(minutes=2)


def plan_events(plan: PlanRecord) -> Iterator[EventBody]:
    """Yield what is told about a new plan; its name is the occasion."""
    spec = plan.spec
    yield EventBody("Normal", PlanReason.PLANNED, PLAN, f"{plan.name}: {summary(spec)}")
    if spec.supersedes:
        yield EventBody("Normal", SUPERSEDED, PLAN, f"{plan.name} takes the place of {spec.supersedes}: {spec.reason}")


def is_recent(plan: PlanRecord, now: datetime) -> bool:
    """Return whether a plan was made a moment ago: whoever made it may have died before it told of it."""
    if not plan.created:
        return False
    return now - datetime.fromisoformat(plan.created) <= _MOMENT


def refusal_event(old: RunStatus, new: RunStatus) -> EventBody | None:
    """Return what is told where the condition Planned turned to another reason of False, None where it did not."""
    before, after = old.condition(CONDITION), new.condition(CONDITION)
    if after is None or after.status == TRUE or (before is not None and before.reason == after.reason):
        return None
    return EventBody("Warning", after.reason, PLAN, after.message)


def regarding(run: WatchedRun) -> Regarding:
    """Return the reference to a run that an Event carries."""
    meta = run.metadata
    return Regarding(API_VERSION, "Run", meta.name, meta.namespace, meta.uid)
