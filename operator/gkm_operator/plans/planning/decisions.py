"""What is to be done about one run, from what stands of it (docs/design/plans.md, The states of a run). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gkm.api.grammar import agree

from gkm_operator.plans.state.objects import AGAIN, WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.request_hash import replan_annotation, request_hash

_SHOWN = 3


class RunAction(StrEnum):
    """What is done: nothing to a run that is being deleted; AFRESH plans as if nothing stood."""

    NOTHING = "nothing"
    KEEP = "keep"
    EXPIRE = "expire"
    AFRESH = "afresh"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done, and why: the sentence stands on the plan that comes of it, "" on the first one.

    A `wish` is somebody's, and nothing is lost while it waits.
    """

    act: RunAction
    why: str = ""
    wish: bool = False


@dataclass(frozen=True, slots=True)
class CurrentPlan:
    """What is known of a run that has a plan.

    `lost` are nodes of the plan on which something of it cannot stay, and why; `taken` the first of the nodes that
    another run's plan has too, and whose; `runs` whether pods of the run take GPUs anywhere.
    """

    plan: PlanRecord
    lost: Mapping[str, str]
    taken: str = ""
    runs: bool = False


def decide(run: WatchedRun, standing: CurrentPlan | None, now: datetime) -> Decision:
    """Return what is done about a run; without `standing` it has no plan."""
    if run.metadata.deletion_timestamp is not None:
        return Decision(RunAction.NOTHING)
    if standing is None:
        return Decision(RunAction.AFRESH)
    over = standing.plan.expired(now) and not standing.runs
    return _replan_request(run, standing, over=over) or (Decision(RunAction.EXPIRE) if over else _unchanged(standing))


def _replan_request(run: WatchedRun, standing: CurrentPlan, *, over: bool) -> Decision | None:
    """Return what somebody asks for, None where nobody does."""
    plan, wanted = standing.plan, replan_annotation(run)
    if wanted and wanted != plan.again:
        act = RunAction.AGAIN if standing.runs else RunAction.AFRESH
        return Decision(act, f"a new plan was asked for by the annotation {AGAIN}", wish=True)
    if _changed(run, plan):
        act = RunAction.AFRESH if over else RunAction.AGAIN
        return Decision(act, f"the Run asks for something else than when {plan.name} was made", wish=True)
    return None


def _unchanged(standing: CurrentPlan) -> Decision:
    if standing.taken:
        return Decision(RunAction.AGAIN, standing.taken)
    return Decision(RunAction.AGAIN, node_loss_message(standing.lost)) if standing.lost else Decision(RunAction.KEEP)


def node_loss_message(lost: Mapping[str, str]) -> str:
    """Return a sentence about nodes that are lost, a few of them by name."""
    named = ", ".join(f"{node} ({lost[node]})" for node in sorted(lost)[:_SHOWN])
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return f"lost {agree(len(lost), 'node', 'nodes')} {named}{more}"


def _changed(run: WatchedRun, plan: PlanRecord) -> bool:
    """Return whether a run asks for something else than a plan was made for.

    Whoever removes the annotation from a plan must not move a run by that.
    """
    if plan.asked:
        return plan.asked != request_hash(run.spec)
    return plan.spec.run_generation != run.metadata.generation
