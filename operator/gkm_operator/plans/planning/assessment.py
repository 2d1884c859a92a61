"""A run in a sweep: what stands of it, and what was decided. Pure, but for the patience with nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gkm.packing.asked import demand as demand_of
from gkm.topology.eligibility import Demand

from gkm_operator.plans.planning.decisions import CurrentPlan, Decision, decide
from gkm_operator.plans.state.node_loss import GracePeriod, NodeProblem, lost_nodes, node_problems
from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class RunAssessment:
    """`demand` is None where the run contradicts itself. `found` are the troubles of its plan's nodes; `ripe` count.

    `over` says that its plan holds nothing any more.
    """

    run: WatchedRun
    plan: PlanRecord | None
    decision: Decision
    demand: Demand | None
    found: Mapping[str, NodeProblem] = field(default_factory=dict)
    confirmed: Mapping[str, NodeProblem] = field(default_factory=dict)
    over: bool = False

    @property
    def uid(self) -> str:
        """Return which run it is, also if one of its name was there before."""
        return self.run.metadata.uid

    @property
    def order(self) -> tuple[bool, int, str, str, str]:
        """Return whose turn comes first: of who has a plan and lost some of it; then by priority, age and name."""
        meta = self.run.metadata
        return self.plan is None, -self.run.spec.priority, meta.creation_timestamp, meta.namespace, meta.name


def assess(run: WatchedRun, snapshot: ClusterSnapshot, patience: GracePeriod, taken: str) -> RunAssessment:
    """Return what stands of a run, and what is decided; `taken` says whether another plan has the same GPUs."""
    plan = snapshot.current(run)
    try:
        demand = demand_of(run.spec)
    except ValueError:
        demand = None
    if plan is None or demand is None:
        standing = None if plan is None else CurrentPlan(plan, {}, taken)
        return RunAssessment(run, plan, decide(run, standing, snapshot.now), demand)
    own = snapshot.taken.of(run.key)
    found = node_problems(plan, demand, snapshot.nodes)
    ripe = patience.confirmed(run.metadata.uid, found)
    standing = CurrentPlan(plan, lost_nodes(plan, own, ripe), taken, bool(own))
    over = plan.expired(snapshot.now) and not own
    return RunAssessment(run, plan, decide(run, standing, snapshot.now), demand, found, ripe, over)
