"""How often the status of runs and plans is written: a status for which no user waits must not load the API server."""

from collections.abc import Collection, Iterable, Mapping

from gkm.hoststate.pacing import Clock, MinimumInterval

from gkm_operator.plans.planning.assessment import PlanningResult, RunAssessment
from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from gkm_operator.plans.write.status import desired_plan_status, desired_status, differs_in_numbers_only
from gkm_operator.plans.write.writer import PlanWriter

MAX_REFUSALS = 50
"""Statuses of refused runs that one pass writes."""
NUMBERS_SECONDS = 30.0
"""The minimum interval between two statuses of a refused run that differ in numbers only."""
MAX_PLAN_STATUSES = 50
"""Statuses of plans that one pass writes."""


class StatusThrottle:
    """Writes the status of runs and plans. For the one thread that plans."""

    def __init__(self, writer: PlanWriter, clock: Clock) -> None:
        self._writer = writer
        self._now = ""
        self._left = 0
        self._numbers: MinimumInterval[str] = MinimumInterval(NUMBERS_SECONDS, clock)
        self.held_back = False

    def begin(self, now: str) -> None:
        """Begin a pass; `now` is a timestamp of the API."""
        self._now = now
        self._left = MAX_REFUSALS
        self.held_back = False

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all other runs."""
        self._numbers.retain_only(uids)

    def report(self, run: WatchedRun, result: PlanningResult) -> None:
        """Write the status of a run if it changes; set `held_back` if a later pass must do it."""
        old = self._writer.status(run)
        new = desired_status(run, old, result, self._now)
        if new == old:
            return
        uid = run.metadata.uid
        if result.unfit is not None:
            if not self._left or (not self._numbers.has_passed(uid) and differs_in_numbers_only(old, new)):
                self.held_back = True
                return
            self._left -= 1
        self._numbers.record(uid)
        self._writer.write_status(run, new)

    def report_plans(
        self, cases: Iterable[RunAssessment], snapshot: ClusterSnapshot, created: Mapping[str, PlanRecord]
    ) -> bool:
        """Write the status of the plans in a snapshot if it changes; return whether all statuses are current.

        `created` has the plans that are newer than the snapshot, by the uid of their run. A plan that the watch has not
        shown is left to a later pass. The first write that fails ends this one.

        Raises:
            NotLeading: this process must not write any more.
        """
        left = MAX_PLAN_STATUSES
        for case in cases:
            current = created.get(case.uid, case.plan)
            if current is None or case.run.metadata.deletion_timestamp is not None:
                continue
            for plan in snapshot.plans.get(case.run.key, ()):
                if plan.owner != case.uid or not plan.version:
                    continue
                started = case.started and plan is case.plan
                new = desired_plan_status(plan, current, self._now, over=case.over, started=started)
                if new == plan.status or self._writer.is_plan_status_pending(plan):
                    continue
                if not left:
                    return False
                left -= 1
                if not self._writer.write_plan_status(plan, new):
                    return False
        return True
