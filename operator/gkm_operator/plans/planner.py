"""Plan one run: return a new plan, or the reason why it does not fit.

The planner never writes to the API server. It returns a NewPlan, which the reconciler commits, or a PlanningResult. It
caches refusals: while the request of a run and its free capacity stay the same, it returns the cached refusal instead
of a new search.
"""

import logging
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace

from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.packing.values import Plan, Refusal, Request

from gkm_operator import metrics
from gkm_operator.plans.planning.assessment import PlanningResult, RunAction, RunAssessment
from gkm_operator.plans.planning.draft import (
    FoundPlan,
    PlanDraft,
    PlanOccasion,
    find_plan,
    log_groups,
    make_draft,
    sizes,
)
from gkm_operator.plans.planning.drift import followed, is_closer
from gkm_operator.plans.planning.refusals import RETRY_SECONDS, CachedRefusal, PlanReason, RefusalCache, Unfit, unfit
from gkm_operator.plans.state.free_capacity import FreeCapacity, FreeGpus
from gkm_operator.plans.state.node_loss import node_problems, retained_nodes
from gkm_operator.plans.state.objects import PlanIndex, PlanRecord
from gkm_operator.plans.state.snapshot import ClusterSnapshot

_LOG = logging.getLogger(__name__)

_SCOPES_INVALID = Unfit(PlanReason.INVALID_REQUEST, "two scopes have one name")
_NOT_FOLLOWED = PlanningResult(unfit=Unfit(PlanReason.DOES_NOT_FIT, "no plan is closer to the pods of the run"))


@dataclass(frozen=True, slots=True)
class NewPlan:
    """A PlacementPlan to create, and the free GPUs and cluster state that it was made from.

    A plan that is `expired` from the beginning says where the run would fit, and holds no GPUs.
    """

    draft: PlanDraft
    plan: Plan
    free: FreeGpus
    state: Hashable
    expired: bool = False


class Planner:
    """Plans single Runs. Only the planning thread may use it. `index` knows the highest plan number of each Run."""

    def __init__(self, index: PlanIndex, settings: Packing) -> None:
        self.refusals = RefusalCache()
        self._index = index
        self._settings = settings

    def plan(self, case: RunAssessment, capacity: FreeCapacity, snapshot: ClusterSnapshot) -> NewPlan | PlanningResult:
        """Return a new plan for a Run, its current plan if a new one would be equal, or a refusal."""
        if case.decision.action is RunAction.FOLLOW:
            return self._follow(case, capacity, snapshot)
        cached, state = self.refusals.get(case.uid), _state_key(capacity, snapshot)
        if cached is not None and time.monotonic() >= cached.until:
            self.refusals.remove(case.uid)
            cached = None
        if cached is not None and (cached.request, cached.state) == (_request_key(case), state):
            return _refused(case, cached)
        request, free = sizes(case.run, self._settings), self._free(case, _former(case), capacity)
        if isinstance(request, Unfit) or free is None:
            invalid = request if isinstance(request, Unfit) else _SCOPES_INVALID
            return self._refuse(case, invalid, state)
        if cached is not None and (cached.request, cached.version) == (_request_key(case), free.version):
            cached.state = state
            return _refused(case, cached)
        planned = self._plan(case, free, request, snapshot, state)
        return self._refuse(case, planned, state, free.version) if isinstance(planned, Unfit) else planned

    def _plan(
        self, case: RunAssessment, free: FreeGpus, request: Request, snapshot: ClusterSnapshot, state: Hashable
    ) -> NewPlan | PlanningResult | Unfit:
        began = time.monotonic()
        former = _former(case)
        found = find_plan(free, request, former.groups if former else ())
        metrics.PLAN_SECONDS.observe(time.monotonic() - began)
        if isinstance(found, Refusal):
            return unfit(found, free.usable, snapshot.nodes.survey, case.run.spec.flavor)
        if isinstance(found, Unfit):
            return found
        if is_redundant(case, found):
            # Another number on the same groups would be followed by the next one.
            return PlanningResult(case.plan)
        return self._draft(case, found, free, snapshot, state)

    def _draft(
        self, case: RunAssessment, found: FoundPlan, free: FreeGpus, snapshot: ClusterSnapshot, state: Hashable
    ) -> NewPlan | Unfit:
        number = 1 + self._index.last_number(case.run.key)
        # A plan that follows pods holds no further GPUs.
        renews = case.renews and case.decision.action is not RunAction.FOLLOW
        occasion = PlanOccasion(number, snapshot.now, case.decision.message, case.plan, renews)
        draft = make_draft(case.run, found, free, self._settings, occasion)
        if isinstance(draft, Unfit):
            return draft
        return NewPlan(draft, found.plan, free, state, draft.counts.expired(snapshot.now) and case.over)

    def _follow(
        self, case: RunAssessment, capacity: FreeCapacity, snapshot: ClusterSnapshot
    ) -> NewPlan | PlanningResult:
        """Return a plan of a run that is closer to its pods than the current one, a refusal without one."""
        request, plan = sizes(case.run, self._settings), case.plan
        if isinstance(request, Unfit) or plan is None or case.demand is None:
            return _NOT_FOLLOWED
        plans = [one for one in snapshot.plans[case.run.key] if one.owner == case.uid]
        target = followed(plans, case.held, case.demand, snapshot.nodes, request)
        problems = node_problems(target, case.demand, snapshot.nodes)
        free = self._free(replace(case, found=problems), target, capacity)
        found = None if free is None else find_plan(free, request, target.groups)
        if free is None or not isinstance(found, FoundPlan) or not is_closer(found.plan.groups, plan, case.held):
            return _NOT_FOLLOWED
        # Its reasons compare it with where the pods are, and not with the plan that it supersedes.
        new = self._draft(case, FoundPlan(found.plan), free, snapshot, _state_key(capacity, snapshot))
        return _NOT_FOLLOWED if isinstance(new, Unfit) else new

    def created(self, case: RunAssessment, new: NewPlan) -> PlanningResult:
        """Record that the API server stored a new plan; return the result."""
        plan = new.draft.counts
        metrics.PLANS.labels("planned", "").inc()
        self.refusals.remove(case.uid)
        log_fields = fields(run=str(plan.run), plan=plan.name, gpus=plan.spec.gpus, domains=plan.spec.metrics.domains)
        _LOG.info("Run planned", extra=log_fields | fields(gap=plan.spec.metrics.gap, why=plan.spec.reason[:200]))
        log_groups(case.run, new.free, new.plan)
        return PlanningResult(plan, new.expired)

    def not_created(self, case: RunAssessment, new: NewPlan, error: str) -> PlanningResult:
        """Record that the API server refused a new plan; the Run is planned again after RETRY_SECONDS."""
        refusal = Unfit(PlanReason.NOT_WRITTEN, f"the API server does not take plan {new.draft.counts.name}: {error}")
        until = time.monotonic() + RETRY_SECONDS
        return self._refuse(case, refusal, new.state, new.free.version, result="failed", until=until)

    def failed(self, case: RunAssessment, capacity: FreeCapacity, snapshot: ClusterSnapshot) -> PlanningResult:
        """Record that planning a Run raised an exception, which is logged already; return the result."""
        refusal = Unfit(
            PlanReason.PLANNER_FAILED, "the planner failed, which is a mistake of GKM: see the log of gkm-controllers"
        )
        return self._refuse(case, refusal, _state_key(capacity, snapshot), result="failed")

    def fix(self, case: RunAssessment, capacity: FreeCapacity) -> PlanningResult | None:
        """Search for changes of the cluster or the request that would make a refused Run fit.

        Return the refusal with them, None if no search is due.
        """
        cached = self.refusals.get(case.uid)
        request = sizes(case.run, self._settings)
        if cached is None or isinstance(request, Unfit) or case.demand is None:
            return None
        free = self._free(case, _former(case), capacity)
        cached.fixed, cached.fixed_at = cached.version, time.monotonic()
        if free is None or free.version != cached.version:
            return None
        from gkm.packing.fixes import changes  # noqa: PLC0415 - numpy is loaded with the first run

        try:
            cached.fixes = changes(free.inventory, request).fixes
        except Exception:  # noqa: BLE001 -- a refusal without fixes is still an answer
            _LOG.exception(
                "search failed for changes that let a refused Run fit, none reported",
                extra=fields(run=str(case.run.key)),
            )
            cached.fixes = ()
        return _refused(case, cached)

    def _free(self, case: RunAssessment, former: PlanRecord | None, capacity: FreeCapacity) -> FreeGpus | None:
        """Return what a run may use. It retains nodes of the `former` plan that take no new groups."""
        if case.demand is None:
            return None
        retained = () if former is None else tuple(retained_nodes(former, case.held, case.found, case.confirmed))
        return capacity.free_for(case.run.key, case.demand, retained, alone=case.plan is not None)

    def _refuse(
        self,
        case: RunAssessment,
        refusal: Unfit,
        state: Hashable,
        version: str = "",
        *,
        result: str = "refused",
        until: float = float("inf"),
    ) -> PlanningResult:
        metrics.PLANS.labels(result, refusal.reason).inc()
        before = self.refusals.get(case.uid)
        if before is None or before.unfit != refusal:
            log_fields = fields(run=str(case.run.key), reason=refusal.reason, why=refusal.message[:400])
            _LOG.info("Run not planned", extra=log_fields)
        cached = CachedRefusal(_request_key(case), version, state, refusal, until=until)
        self.refusals.put(case.uid, cached)
        return _refused(case, cached)


def is_redundant(case: RunAssessment, found: FoundPlan) -> bool:
    """Return whether a new plan of a Run would equal its current one, and no user requested a new plan."""
    plan, run = case.plan, case.run
    if plan is None or case.decision.action is not RunAction.AGAIN:
        return False
    made_for = plan.groups, plan.request_hash, plan.replan_annotation
    return made_for == (found.plan.groups, run.request_hash, run.replan_annotation)


def _refused(case: RunAssessment, cached: CachedRefusal) -> PlanningResult:
    return PlanningResult(case.plan, case.over, cached.unfit, case.decision.message, cached.fixes)


def _former(case: RunAssessment) -> PlanRecord | None:
    """Return the plan whose groups should stay where they are."""
    return case.plan if case.decision.action is RunAction.AGAIN else None


def _state_key(capacity: FreeCapacity, snapshot: ClusterSnapshot) -> Hashable:
    """Return a value that differs whenever the cluster or the reservations differ."""
    return snapshot.version, capacity.reservations.version


def _request_key(case: RunAssessment) -> Hashable:
    """Return a value that differs whenever the planner must search for something else."""
    plan = case.plan.name if case.plan else ""
    nodes = tuple(sorted(case.found)) + tuple(sorted(case.confirmed))
    return case.run.request_hash, case.run.replan_annotation, case.decision.action, plan, nodes
