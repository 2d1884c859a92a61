"""One reconcile pass over all runs: assess each one, plan those that need a plan, and write the results.

The order of a pass is fixed: report the runs whose plan stays, plan the others by priority until PLANNING_SECONDS are
used up, search for fixes of refused runs, delete old plans, measure fragmentation, and write the status of plans
(docs/design/plans.md).
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.kube.elector import NotLeading

from gkm_operator import metrics
from gkm_operator.plans.planner import NewPlan, Planner
from gkm_operator.plans.planning.assessment import PlanningResult, ReplanLimit, RunAction, RunAssessment, assess
from gkm_operator.plans.planning.drift import DriftTracker
from gkm_operator.plans.planning.fragmentation_metrics import FragmentationMetrics
from gkm_operator.plans.planning.namespace_share import NamespaceShare
from gkm_operator.plans.state.free_capacity import FreeCapacity, excess
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.objects import PlanRecord, PodsReports, WatchedRun, no_reports
from gkm_operator.plans.state.snapshot import ClusterSnapshot, double_allocations
from gkm_operator.plans.write import status
from gkm_operator.plans.write.writer import PlanWriter, SendResult, StatusThrottle

_LOG = logging.getLogger(__name__)

PLANNING_SECONDS = 4.0
FIXING_SECONDS = 2.0
KEPT_PLANS = 3
MAX_ORPHANS = 50
"""Limit of orphaned plans that one pass deletes."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of a planning pass: how many Runs wait for a plan, and whether another pass should follow (`more`)."""

    waiting: int
    more: bool


class RunReconciler:
    """Reconciles all Runs. Only the planning thread may use it; its memory between passes only saves work."""

    def __init__(
        self,
        writer: PlanWriter,
        planner: Planner,
        clock: Callable[[], float] = time.monotonic,
        *,
        grace: GracePeriod | None = None,
        fragmentation: FragmentationMetrics | None = None,
        namespace_share: int = 100,
        pods: PodsReports = no_reports,
    ) -> None:
        self.grace = grace or GracePeriod()
        self._drifts = DriftTracker(self.grace)
        self._fragmentation = fragmentation
        self._percent = namespace_share
        self._share: NamespaceShare | None = None
        self._writer = writer
        self._planner = planner
        self._clock = clock
        self._pods = pods
        self._statuses = StatusThrottle(writer, clock, pods)
        self._passes = 0
        self._skipped_since: dict[str, int] = {}
        self._created: dict[str, PlanRecord] = {}
        self._again = False
        self._replans = ReplanLimit(clock)

    def seconds_remaining(self, at_most: float) -> float:
        """Return the seconds until the next grace period of a node problem or drift ends, `at_most` if none runs."""
        return min(self.grace.seconds_remaining(at_most), self._drifts.grace.seconds_remaining(at_most))

    def reconcile(self, snapshot: ClusterSnapshot) -> ReconcileResult:
        """Decide about every Run of a snapshot, and write the plans and statuses.

        Raises:
            NotLeading: this process must not write any more.
        """
        live = snapshot.live()
        totals = {located.node.name: located.gpus for located in snapshot.nodes.survey.located}
        conflicts = double_allocations(live, totals, snapshot.held)
        cases = [self._assess(run, snapshot, conflicts.get(run.key, "")) for run in snapshot.runs]
        self._forget_deleted(snapshot)
        capacity = FreeCapacity(snapshot.nodes.survey, snapshot.pods, snapshot.reserved(live))
        self._statuses.begin(timestamp(snapshot.now))
        self._created = {}
        self._again = False
        for case in cases:
            self._report_unchanged(case, snapshot)
        to_plan = sorted(filter(self._is_due, cases), key=lambda case: case.order)
        self._share = NamespaceShare.of(self._percent, snapshot.nodes.survey, cases)
        all_planned = self._plan_all(to_plan, capacity, snapshot)
        self._fix(to_plan, capacity)
        self._delete_old(snapshot)
        if self._fragmentation is not None:
            state = snapshot.version, capacity.reservations.version
            reserved = capacity.reservations.total
            self._fragmentation.update(state, snapshot.nodes.survey, snapshot.pods.usage, reserved)
        all_reported = self._statuses.report_plans(cases, snapshot, self._created)
        waiting = sum(case.holds_anew for case in to_plan)
        metrics.PLAN_DRIFT.set(sum(sum(case.drift.values()) for case in cases))
        more = not (all_planned and all_reported) or self._statuses.held_back or self._again
        return ReconcileResult(waiting, more)

    def _assess(self, run: WatchedRun, snapshot: ClusterSnapshot, conflict: str) -> RunAssessment:
        pods = self._pods(run.key)
        awaited = pods is not None and pods.needs_plan
        return assess(run, snapshot, self.grace, self._drifts, conflict, awaited=awaited)

    def _report_unchanged(self, case: RunAssessment, snapshot: ClusterSnapshot) -> None:
        """Report a run that keeps its plan, or whose plan expired."""
        if case.plan is None or case.decision.action not in (RunAction.KEEP, RunAction.EXPIRE):
            return
        self._planner.refusals.remove(case.uid)
        self._report(case, PlanningResult(case.plan, expired=case.decision.action is RunAction.EXPIRE))
        if status.is_recent(case.plan, snapshot.now):
            self._emit_events(case, case.plan)

    def _plan_all(self, cases: Sequence[RunAssessment], capacity: FreeCapacity, snapshot: ClusterSnapshot) -> bool:
        """Plan runs until the time is used up; return whether all were planned."""
        deadline = self._clock() + PLANNING_SECONDS
        self._passes += 1
        # Runs that an earlier pass skipped come first, or new runs of high priority could hold them up for ever.
        since = {case.uid: self._skipped_since.get(case.uid, self._passes) for case in cases}
        skipped = dict(since)
        ready = True
        for case in sorted(cases, key=lambda case: since[case.uid]):
            if not ready or self._clock() > deadline:
                break
            del skipped[case.uid]
            ready = self._plan(case, capacity, snapshot)
        self._skipped_since = skipped
        return ready and not skipped

    def _plan(self, case: RunAssessment, capacity: FreeCapacity, snapshot: ClusterSnapshot) -> bool:
        """Plan a run and write the result; return whether further runs may be planned."""
        try:
            in_share = self._in_share(case, capacity)
            planned = self._over_share(case, capacity) or self._planner.plan(in_share, capacity, snapshot)
            result = self._commit(case, planned, capacity) if isinstance(planned, NewPlan) else planned
        except NotLeading:
            raise
        except Exception:  # noqa: BLE001 -- a run for which the planner fails must not stop the others
            _LOG.exception("planner failed for a Run, the other Runs are planned", extra=fields(run=str(case.run.key)))
            result = self._planner.failed(case, capacity, snapshot)
        if result is None:
            return False
        if case.decision.action is RunAction.FOLLOW and result.unfit is not None:
            result = self._give_up_following(case)
        self._report(case, result)
        if result.unfit is None and result.plan is not None and result.plan is not case.plan:
            self._replans.record(case.uid)
            self._created[case.uid] = result.plan
            self._emit_events(case, result.plan)
        return True

    def _over_share(self, case: RunAssessment, capacity: FreeCapacity) -> PlanningResult | None:
        """Return the result of a run whose namespace holds its share of GPUs already, None for any other."""
        refusal = None if self._share is None else self._share.refusal(case, capacity.reservations)
        if refusal is None:
            return None
        self._planner.refusals.remove(case.uid)
        return PlanningResult(case.plan, case.over, refusal, case.decision.message)

    def _in_share(self, case: RunAssessment, capacity: FreeCapacity) -> RunAssessment:
        """Return a run with what is known of the share of its namespace: beyond it, no plan is renewed."""
        exceeded = self._share is not None and self._share.exceeded_by(case, capacity.reservations)
        return replace(case, within_share=not exceeded)

    def _give_up_following(self, case: RunAssessment) -> PlanningResult:
        """Return the result of a run whose plan cannot follow its pods: the next pass does what else is due."""
        if case.plan is not None:
            self._drifts.give_up(case.uid, case.plan, case.held)
        self._again = True
        return PlanningResult(case.plan)

    def _report(self, case: RunAssessment, result: PlanningResult) -> None:
        """Write the status of a run, with the drift of its pods from the plan in the result."""
        plan = result.plan
        drift = case.drift if plan is None or plan is case.plan else excess(case.held, plan.claims)
        self._statuses.report(case.run, replace(result, drift=drift))

    def _commit(self, case: RunAssessment, new: NewPlan, capacity: FreeCapacity) -> PlanningResult | None:
        """Create a new plan; return None if it may or may not exist, so that no further run may be planned."""
        outcome, plan = self._writer.create(new.draft), new.draft.counts
        if outcome is SendResult.REFUSED:
            return self._planner.not_created(case, new, self._writer.refusal)
        pod = None if case.demand is None else case.demand.pod
        capacity.record_plan(plan.run, {} if new.expired else plan.claims, pod)
        return self._planner.created(case, new) if outcome is SendResult.CREATED else None

    def _fix(self, cases: Iterable[RunAssessment], capacity: FreeCapacity) -> None:
        by_uid = {case.uid: case for case in cases}
        deadline = self._clock() + FIXING_SECONDS
        for uid in self._planner.refusals.to_fix(by_uid, self._clock()):
            if self._clock() > deadline:
                return
            if (result := self._planner.fix(by_uid[uid], capacity)) is not None:
                self._report(by_uid[uid], result)

    def _delete_old(self, snapshot: ClusterSnapshot) -> None:
        for run in snapshot.runs:
            plans = [plan for plan in snapshot.plans.get(run.key, ()) if plan.owner == run.metadata.uid]
            for plan in plans[:-KEPT_PLANS]:
                _LOG.debug("old plan of a Run is deleted", extra=fields(run=str(run.key), plan=plan.name))
                self._writer.delete(plan)
        # `kubectl delete run --cascade=orphan` removes the owner from plans, so the garbage collector skips them.
        orphans = [plan for plans in snapshot.plans.values() for plan in plans if not plan.owner]
        for plan in orphans[:MAX_ORPHANS]:
            _LOG.info(
                "plan without an owner reference to a Run is deleted", extra=fields(run=str(plan.run), plan=plan.name)
            )
            self._writer.delete(plan)

    def _emit_events(self, case: RunAssessment, plan: PlanRecord) -> None:
        for event in status.plan_events(plan):
            self._writer.emit(case.run, event, plan.name)

    def _is_due(self, case: RunAssessment) -> bool:
        """Return whether this pass plans a run. A user's request may be delayed; lost nodes may not."""
        decision = case.decision
        return decision.action in (RunAction.AFRESH, RunAction.AGAIN, RunAction.FOLLOW) and not (
            decision.requested and self._replans.is_exceeded(case.uid)
        )

    def _forget_deleted(self, snapshot: ClusterSnapshot) -> None:
        uids = {run.metadata.uid for run in snapshot.runs}
        self.grace.retain_only(uids)
        self._drifts.retain_only(uids)
        self._planner.refusals.retain_only(uids)
        self._statuses.retain_only(uids)
        self._replans.retain_only(uids)
