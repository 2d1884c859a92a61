"""Assess a run in one pass: its plan, the problems of its nodes, and whether it needs a new plan.

docs/design/plans.md, "The states of a run", has the table of decisions.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gkm.api.grammar import agree
from gkm.api.plans import PlanRequest
from gkm.api.runs import RunSpec
from gkm.packing.conversion import demand as demand_of
from gkm.packing.values import Fix
from gkm.topology.eligibility import NodeDemand
from gkm.topology.labels import flavor

from gkm_operator.plans.planning.drift import DriftTracker
from gkm_operator.plans.planning.refusals import Unfit
from gkm_operator.plans.state.free_capacity import excess
from gkm_operator.plans.state.node_loss import GracePeriod, NodeProblem, lost_nodes, node_problems
from gkm_operator.plans.state.objects import REPLAN_ANNOTATION, PlanRecord, WatchedRun
from gkm_operator.plans.state.snapshot import ClusterSnapshot

BURST = 6
BURST_SECONDS = 180.0
_MAX_NAMED_NODES = 3


class RunAction(StrEnum):
    """The action of a planning pass for a Run.

    NOTHING is for a run that is being deleted. AFRESH plans as if it had no plan, AGAIN from its plan, and FOLLOW from
    its pods.
    """

    NOTHING = "nothing"
    KEEP = "keep"
    EXPIRE = "expire"
    AFRESH = "afresh"
    AGAIN = "again"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """The action for a Run, and its reason, which the new plan records; "" for a first plan.

    `requested` is set if a user requested the new plan: the run keeps its plan while the request is delayed.
    """

    action: RunAction
    message: str = ""
    requested: bool = False


@dataclass(frozen=True, slots=True)
class CurrentPlan:
    """The current plan of a Run, and the problems of its nodes.

    `lost` maps nodes of the plan that the run can no longer use to the reason. `conflict` is a message about a node
    whose GPUs the plan of another run names too. `running` is set while pods of the run use GPUs on any node. `drift`
    is a message about GPUs that pods hold elsewhere, and where the plan could follow them. `awaited`: the plan has
    expired, and pods wait behind the gate for another one.
    """

    plan: PlanRecord
    lost: Mapping[str, str]
    conflict: str = ""
    running: bool = False
    drift: str = ""
    awaited: bool = False


def decide(run: WatchedRun, current: CurrentPlan | None, now: datetime) -> PlanDecision:
    """Return what to do about a Run; `current` is None if it has no plan."""
    if run.metadata.deletion_timestamp is not None:
        return PlanDecision(RunAction.NOTHING)
    if current is None:
        return PlanDecision(RunAction.AFRESH)
    over = current.plan.expired(now) and not current.running
    if (request := _replan_request(run, current, over=over)) is not None:
        return request
    if over and current.awaited:
        return PlanDecision(RunAction.AFRESH, f"{current.plan.name} expired, and pods wait behind the gate")
    return PlanDecision(RunAction.EXPIRE) if over else _correction(current)


def _correction(current: CurrentPlan) -> PlanDecision:
    """Return the decision about a valid plan that its run does not ask to change."""
    # First of all: a group that the plan moved, and its pods did not, would move again.
    if current.drift:
        return PlanDecision(RunAction.FOLLOW, current.drift)
    if current.conflict:
        return PlanDecision(RunAction.AGAIN, current.conflict)
    return (
        PlanDecision(RunAction.AGAIN, node_loss_message(current.lost)) if current.lost else PlanDecision(RunAction.KEEP)
    )


def _replan_request(run: WatchedRun, current: CurrentPlan, *, over: bool) -> PlanDecision | None:
    """Return the decision for a user's request of a new plan, None without such a request."""
    plan, annotation = current.plan, run.replan_annotation
    if annotation and annotation != plan.replan_annotation:
        action = RunAction.AGAIN if current.running else RunAction.AFRESH
        return PlanDecision(action, f"the annotation {REPLAN_ANNOTATION} requested a new plan", requested=True)
    if is_changed(run, plan):
        action = RunAction.AFRESH if over else RunAction.AGAIN
        return PlanDecision(action, f"the Run has changed since {plan.name} was made", requested=True)
    return None


def node_loss_message(lost: Mapping[str, str]) -> str:
    """Return a sentence about the nodes that a plan has lost, with a few of their names and reasons."""
    named = ", ".join(f"{node} ({lost[node]})" for node in sorted(lost)[:_MAX_NAMED_NODES])
    more = f" and {len(lost) - _MAX_NAMED_NODES} more" if len(lost) > _MAX_NAMED_NODES else ""
    return f"lost {agree(len(lost), 'node', 'nodes')} {named}{more}"


def is_changed(run: WatchedRun, plan: PlanRecord) -> bool:
    """Return whether the Run's request differs from the request that its plan was made for.

    The generation of the Run decides for a plan without the annotation: removing it must not move a run.
    """
    if plan.request_hash:
        return plan.request_hash != run.request_hash
    return plan.spec.run_generation != run.metadata.generation


class ReplanLimit:
    """Limits new plans: BURST in BURST_SECONDS for each Run, by uid. Only the planning thread may use it.

    Each plan is an object of up to a megabyte in etcd.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: dict[str, deque[float]] = {}

    def record(self, uid: str) -> None:
        """Record that the Run with this uid got a new plan."""
        self._recent.setdefault(uid, deque(maxlen=BURST)).append(self._clock())

    def is_exceeded(self, uid: str) -> bool:
        """Return whether the Run with this uid got BURST plans in the last BURST_SECONDS."""
        recent = self._recent.get(uid)
        return recent is not None and len(recent) == BURST and self._clock() < recent[0] + BURST_SECONDS

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all Runs whose uid is not among `uids`."""
        for uid in self._recent.keys() - set(uids):
            del self._recent[uid]


def all_gpus(spec: RunSpec | PlanRequest) -> int:
    """Return the GPUs of all pods and spares of a request."""
    groups = -(-spec.gpus // (spec.group_gpus or spec.gpus_per_pod))
    return spec.gpus + groups * spec.spares * spec.gpus_per_pod


@dataclass(frozen=True, slots=True)
class RunAssessment:
    """A Run with its newest plan, and the decision about it, in one pass.

    `demand` is None if the run contradicts itself. `found` has the problems of the nodes of its plan by node,
    `confirmed` those that have outlasted the grace period. `over` is set when the plan holds no GPUs any more. `held`
    are the GPUs that pods of the run hold, by node, and `drift` the part that the plan does not claim. `started` is set
    once a pod of the run has had GPUs while the plan was the newest, and `awaited` while pods wait for another one than
    the plan, which has expired.
    """

    run: WatchedRun
    plan: PlanRecord | None
    decision: PlanDecision
    demand: NodeDemand | None
    found: Mapping[str, NodeProblem] = field(default_factory=dict)
    confirmed: Mapping[str, NodeProblem] = field(default_factory=dict)
    over: bool = False
    held: Mapping[str, int] = field(default_factory=dict)
    drift: Mapping[str, int] = field(default_factory=dict)
    started: bool = False
    awaited: bool = False
    within_share: bool = True

    @property
    def uid(self) -> str:
        """Return the uid of the Run, which differs from an earlier Run of the same name."""
        return self.run.metadata.uid

    @property
    def renews(self) -> bool:
        """Return whether a new plan of the Run may reserve GPUs for a full planTTL.

        The run has no plan; or pods did use its plan, or wait for another one, and its namespace holds no more than its
        share.
        """
        return self.plan is None or ((self.started or self.awaited) and self.within_share)

    @property
    def holds_anew(self) -> bool:
        """Return whether a new plan would reserve GPUs that the Run does not reserve now."""
        if self.plan is None or self.over:
            return self.renews
        spec, planned = self.run.spec, self.plan.spec
        return flavor(spec.flavor) != planned.flavor or all_gpus(spec) > all_gpus(planned.request)

    @property
    def order(self) -> tuple[bool, int, str, str, str]:
        """Return the sort key for planning: Runs that need no further GPUs first, then by priority, age and name.

        A Run whose plan holds no GPUs any more is as old as that: it had its turn.
        """
        meta = self.run.metadata
        since = self.plan.spec.expires_at if self.plan is not None and self.over else None
        age = since or meta.creation_timestamp
        return self.holds_anew, -self.run.spec.priority, age, meta.namespace, meta.name


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """The result of planning a Run: its plan, or a refusal, or both.

    A refusal beside a plan means that no new plan is possible; `message` is the reason for which one was needed.
    `fixes` is None while the planner has not searched for any. `drift` are the GPUs by node that pods hold and the plan
    does not claim.
    """

    plan: PlanRecord | None = None
    expired: bool = False
    unfit: Unfit | None = None
    message: str = ""
    fixes: Sequence[Fix] | None = None
    drift: Mapping[str, int] = field(default_factory=dict)


def assess(
    run: WatchedRun,
    snapshot: ClusterSnapshot,
    grace: GracePeriod,
    drifts: DriftTracker,
    conflict: str,
    *,
    awaited: bool = False,
) -> RunAssessment:
    """Assess a Run; `conflict` is a message about another Run's plan for the same GPUs, "" if absent.

    `awaited`: its plan has expired, and pods wait behind the gate for another one.
    """
    plan = snapshot.current(run)
    try:
        demand = demand_of(run.spec)
    except ValueError:
        demand = None
    if plan is None or demand is None:
        current = None if plan is None else CurrentPlan(plan, {}, conflict)
        return RunAssessment(run, plan, decide(run, current, snapshot.now), demand)
    running, held = bool(snapshot.pods.of(run.key)), snapshot.held(run.key)
    found = node_problems(plan, demand, snapshot.nodes, changed=is_changed(run, plan))
    confirmed = grace.confirmed(run.metadata.uid, found)
    drift = excess(held, plan.claims)
    due = drifts.due(run.metadata.uid, plan, held, drift)
    current = CurrentPlan(plan, lost_nodes(plan, held, confirmed), conflict, running, due, awaited)
    over = plan.expired(snapshot.now) and not running
    started = running or plan.started
    decision = decide(run, current, snapshot.now)
    return RunAssessment(run, plan, decision, demand, found, confirmed, over, held, drift, started, awaited)
