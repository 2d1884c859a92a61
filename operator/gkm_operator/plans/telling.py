"""What is told about a Run, as Events: what its status says now and did not say before. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gkm.api.meta import API_VERSION, TRUE
from gkm.api.runs import RunStatus
from gkm.kube.events import Regarding, Told

from gkm_operator.plans.book import Made
from gkm_operator.plans.objects import WatchedRun
from gkm_operator.plans.status import summary
from gkm_operator.plans.wording import CONDITION, Reason

PLAN = "Plan"
SUPERSEDED = "Superseded"

_MOMENT = timedelta(minutes=2)


def of_plan(plan: Made) -> Iterator[Told]:
    """Yield what is told about a new plan; its name is the occasion."""
    spec = plan.spec
    yield Told("Normal", Reason.PLANNED, PLAN, f"{plan.name}: {summary(spec)}")
    if spec.supersedes:
        yield Told("Normal", SUPERSEDED, PLAN, f"{plan.name} takes the place of {spec.supersedes}: {spec.reason}")


def fresh(plan: Made, now: datetime) -> bool:
    """Return whether a plan was made a moment ago: whoever made it may have died before it told of it."""
    if not plan.created:
        return False
    return now - datetime.fromisoformat(plan.created) <= _MOMENT


def of_refusal(old: RunStatus, new: RunStatus) -> Told | None:
    """Return what is told where the condition Planned turned to another reason of False, None where it did not."""
    before, after = old.condition(CONDITION), new.condition(CONDITION)
    if after is None or after.status == TRUE or (before is not None and before.reason == after.reason):
        return None
    return Told("Warning", after.reason, PLAN, after.message)


def regarding(run: WatchedRun) -> Regarding:
    """Return the reference to a run that an Event carries."""
    meta = run.metadata
    return Regarding(API_VERSION, "Run", meta.name, meta.namespace, meta.uid)
