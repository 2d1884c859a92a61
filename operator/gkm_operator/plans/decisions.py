"""What is to be done about one run, from what stands of it (docs/design/plans.md, The states of a run). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gkm.api.grammar import agree

from gkm_operator.plans.asking import again, asked
from gkm_operator.plans.book import Made
from gkm_operator.plans.objects import AGAIN, WatchedRun

_SHOWN = 3


class Act(StrEnum):
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

    act: Act
    why: str = ""
    wish: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a run that has a plan.

    `lost` are nodes of the plan on which something of it cannot stay, and why; `taken` the first of the nodes that
    another run's plan has too, and whose; `runs` whether pods of the run take GPUs anywhere.
    """

    plan: Made
    lost: Mapping[str, str]
    taken: str = ""
    runs: bool = False


def decide(run: WatchedRun, standing: Standing | None, now: datetime) -> Decision:
    """Return what is done about a run; without `standing` it has no plan."""
    if run.metadata.deletion_timestamp is not None:
        return Decision(Act.NOTHING)
    if standing is None:
        return Decision(Act.AFRESH)
    over = standing.plan.expired(now) and not standing.runs
    return _asked(run, standing, over=over) or (Decision(Act.EXPIRE) if over else _kept(standing))


def _asked(run: WatchedRun, standing: Standing, *, over: bool) -> Decision | None:
    """Return what somebody asks for, None where nobody does."""
    plan, wanted = standing.plan, again(run)
    if wanted and wanted != plan.again:
        act = Act.AGAIN if standing.runs else Act.AFRESH
        return Decision(act, f"a new plan was asked for by the annotation {AGAIN}", wish=True)
    if _changed(run, plan):
        act = Act.AFRESH if over else Act.AGAIN
        return Decision(act, f"the Run asks for something else than when {plan.name} was made", wish=True)
    return None


def _kept(standing: Standing) -> Decision:
    if standing.taken:
        return Decision(Act.AGAIN, standing.taken)
    return Decision(Act.AGAIN, lost_nodes(standing.lost)) if standing.lost else Decision(Act.KEEP)


def lost_nodes(lost: Mapping[str, str]) -> str:
    """Return a sentence about nodes that are lost, a few of them by name."""
    named = ", ".join(f"{node} ({lost[node]})" for node in sorted(lost)[:_SHOWN])
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return f"lost {agree(len(lost), 'node', 'nodes')} {named}{more}"


def _changed(run: WatchedRun, plan: Made) -> bool:
    """Return whether a run asks for something else than a plan was made for.

    Whoever removes the annotation from a plan must not move a run by that.
    """
    if plan.asked:
        return plan.asked != asked(run.spec)
    return plan.spec.run_generation != run.metadata.generation
