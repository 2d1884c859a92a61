"""One sweep: what is decided about every run, in order, and done (docs/design/plans.md)."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields

from gkm_operator.plans.plan_reports import MadeByRun, report
from gkm_operator.plans.planner import Planner
from gkm_operator.plans.planning.assessment import RunAssessment
from gkm_operator.plans.planning.assessment import assess as case_of
from gkm_operator.plans.planning.decisions import RunAction
from gkm_operator.plans.replan_limit import ReplanLimit
from gkm_operator.plans.state.free_capacity import FreeCapacity
from gkm_operator.plans.state.node_loss import GracePeriod
from gkm_operator.plans.state.snapshot import ClusterSnapshot, double_allocations
from gkm_operator.plans.write import events as telling
from gkm_operator.plans.write.status import PlanningResult
from gkm_operator.plans.write.status_throttle import StatusThrottle
from gkm_operator.plans.write.writer import PlanWriter

_LOG = logging.getLogger(__name__)

PLANNING_SECONDS = 4.0
FIXING_SECONDS = 2.0
KEPT_PLANS = 3
MAX_DROPPED = 50
"""Plans that are nobody's, in one sweep."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """How a sweep ended: `waiting` runs have no plan; `more` says that the next one should follow."""

    waiting: int
    more: bool


class RunReconciler:
    """What outlives a sweep is memory only: it saves work, and decides nothing."""

    def __init__(
        self,
        writer: PlanWriter,
        attempts: Planner,
        clock: Callable[[], float] = time.monotonic,
        patience: GracePeriod | None = None,
    ) -> None:
        self.patience = patience or GracePeriod()
        self._writer = writer
        self._attempts = attempts
        self._clock = clock
        self._reports = StatusThrottle(writer, clock)
        self._sweeps = 0
        self._passed_over: dict[str, int] = {}
        self._made: MadeByRun = {}
        self._pace = ReplanLimit(clock)

    def reconcile(self, snapshot: ClusterSnapshot) -> ReconcileResult:
        """Decide about every run of a snapshot, and act.

        Raises:
            NotLeading: nothing must be written any more.
        """
        live = snapshot.live()
        totals = {located.node.name: located.gpus for located in snapshot.nodes.survey.located}
        twice = double_allocations(live, totals, snapshot.running(live))
        cases = [case_of(run, snapshot, self.patience, twice.get(run.key, "")) for run in snapshot.runs]
        self._forget(snapshot)
        room = FreeCapacity(snapshot.nodes.survey, snapshot.taken, snapshot.reserved(live))
        self._reports.begin(timestamp(snapshot.now))
        self._made = {}
        for case in cases:
            self._settled(case, snapshot)
        to_plan = sorted(filter(self._is_due, cases), key=lambda case: case.order)
        done = self._plan_all(to_plan, room, snapshot)
        self._fix(to_plan, room, snapshot)
        self._drop_old(snapshot)
        said = report(self._writer, cases, snapshot, self._made, timestamp(snapshot.now))
        waiting = sum(case.plan is None for case in to_plan)
        return ReconcileResult(waiting, more=not (done and said) or self._reports.held_back)

    def _settled(self, case: RunAssessment, snapshot: ClusterSnapshot) -> None:
        """Say what stands of a run that is not planned now."""
        if case.plan is None or case.decision.act not in (RunAction.KEEP, RunAction.EXPIRE):
            return
        self._attempts.answers.remove(case.uid)
        self._reports.report(case.run, PlanningResult(case.plan, expired=case.decision.act is RunAction.EXPIRE))
        if telling.is_recent(case.plan, snapshot.now):
            for told in telling.plan_events(case.plan):
                self._writer.emit(case.run, told, case.plan.name)

    def _plan_all(self, cases: Sequence[RunAssessment], room: FreeCapacity, snapshot: ClusterSnapshot) -> bool:
        """Plan runs until the time is up; return whether all had their turn."""
        ends = self._clock() + PLANNING_SECONDS
        self._sweeps += 1
        # Who was passed over goes before all that came since: newcomers of high priority would hold up others for ever.
        ordered = sorted(cases, key=lambda case: self._passed_over.get(case.uid, self._sweeps))
        left = {case.uid: self._passed_over.get(case.uid, self._sweeps) for case in ordered}
        known = True
        for case in ordered:
            if not known or self._clock() > ends:
                break
            del left[case.uid]
            known = self._plan(case, room, snapshot)
        self._passed_over = left
        return known and not left

    def _plan(self, case: RunAssessment, room: FreeCapacity, snapshot: ClusterSnapshot) -> bool:
        """Plan a run; return whether others may be planned after it."""
        came = self._attempts.plan(case, room, snapshot)
        if came is None:
            return False
        self._reports.report(case.run, came)
        if came.unfit is None and came.plan is not None:
            self._pace.record(case.uid)
            self._made[case.uid] = came.plan
            for told in telling.plan_events(came.plan):
                self._writer.emit(case.run, told, came.plan.name)
        return True

    def _fix(self, cases: Iterable[RunAssessment], room: FreeCapacity, snapshot: ClusterSnapshot) -> None:
        by_uid = {case.uid: case for case in cases}
        ends = self._clock() + FIXING_SECONDS
        for uid in self._attempts.answers.to_fix(by_uid, self._clock()):
            if self._clock() > ends:
                return
            if (came := self._attempts.fix(by_uid[uid], room, snapshot)) is not None:
                self._reports.report(by_uid[uid].run, came)

    def _drop_old(self, snapshot: ClusterSnapshot) -> None:
        for run in snapshot.runs:
            plans = [plan for plan in snapshot.plans.get(run.key, ()) if plan.owner == run.metadata.uid]
            for plan in plans[:-KEPT_PLANS]:
                _LOG.debug("old plan goes", extra=fields(run=str(run.key), plan=plan.name))
                self._writer.delete(plan)
        # From what outlives its Run (kubectl delete --cascade=orphan) the owner is taken; nobody else would delete it.
        orphans = [plan for plans in snapshot.plans.values() for plan in plans if not plan.owner]
        for plan in orphans[:MAX_DROPPED]:
            _LOG.info("plan of no run goes", extra=fields(run=str(plan.run), plan=plan.name))
            self._writer.delete(plan)

    def _is_due(self, case: RunAssessment) -> bool:
        """Return whether a run is planned in this sweep. A wish may wait; nodes that are lost do not."""
        decision = case.decision
        return decision.act in (RunAction.AFRESH, RunAction.AGAIN) and not (
            decision.wish and self._pace.is_exceeded(case.uid)
        )

    def _forget(self, snapshot: ClusterSnapshot) -> None:
        uids = {run.metadata.uid for run in snapshot.runs}
        self.patience.retain_only(uids)
        self._attempts.answers.retain_only(uids)
        self._reports.retain_only(uids)
        self._pace.retain_only(uids)
