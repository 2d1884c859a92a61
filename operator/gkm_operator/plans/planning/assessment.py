"""A run in one reconcile pass: its plan, the problems of its nodes, the decision, and the result of planning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gkm.packing.conversion import demand as demand_of
from gkm.packing.values import Fix
from gkm.topology.eligibility import NodeDemand

from gkm_operator.plans.planning.decisions import CurrentPlan, PlanDecision, decide, is_changed
from gkm_operator.plans.planning.drift import DriftTracker, outside
from gkm_operator.plans.planning.refusals import Unfit
from gkm_operator.plans.state.node_loss import GracePeriod, NodeProblem, lost_nodes, node_problems
from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class RunAssessment:
    """A run, its newest plan, and the decision about it.

    `demand` is None if the run contradicts itself. `found` has the problems of the nodes of its plan by node,
    `confirmed` those that have outlasted the grace period. `over` is set when the plan holds no GPUs any more. `held`
    are the GPUs that pods of the run hold, by node, and `drift` those of them that the plan does not claim. `started`
    is set once a pod of the run has had GPUs while the plan was the newest.
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
    within_share: bool = True

    @property
    def uid(self) -> str:
        """Return the uid of the run, which differs from that of an earlier run of the same name."""
        return self.run.metadata.uid

    @property
    def renews(self) -> bool:
        """Return whether a new plan holds GPUs for a whole planTTL.

        The run has no plan, or it did use its plan and its namespace holds no more than its share.
        """
        return self.plan is None or (self.started and self.within_share)

    @property
    def holds_anew(self) -> bool:
        """Return whether a new plan holds GPUs that the run does not hold now."""
        return self.plan is None or (self.over and self.renews)

    @property
    def order(self) -> tuple[bool, int, str, str, str]:
        """Return the sort key of planning: first runs that have a plan, then by priority, age and name."""
        meta = self.run.metadata
        return self.plan is None, -self.run.spec.priority, meta.creation_timestamp, meta.namespace, meta.name


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """The result of planning a run: its plan (current, new or expired), or a refusal, or both.

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
    run: WatchedRun, snapshot: ClusterSnapshot, grace: GracePeriod, drifts: DriftTracker, conflict: str
) -> RunAssessment:
    """Assess a run; `conflict` is the message about a plan of another run with the same GPUs, "" without one."""
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
    drift = outside(plan.claims, held)
    due = drifts.due(run.metadata.uid, plan, held, drift)
    current = CurrentPlan(plan, lost_nodes(plan, held, confirmed), conflict, running, due)
    over = plan.expired(snapshot.now) and not running
    started = running or plan.started
    decision = decide(run, current, snapshot.now)
    return RunAssessment(run, plan, decision, demand, found, confirmed, over, held, drift, started)
