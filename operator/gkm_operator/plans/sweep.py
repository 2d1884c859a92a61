"""One sweep: what is decided about every run, in order, and done (docs/design/plans.md)."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields

from gkm_operator.plans import telling
from gkm_operator.plans.attempts import Attempts
from gkm_operator.plans.cases import Case
from gkm_operator.plans.cases import case as case_of
from gkm_operator.plans.decisions import Act
from gkm_operator.plans.lost import Patience
from gkm_operator.plans.pace import Pace
from gkm_operator.plans.plan_reports import MadeByRun, report
from gkm_operator.plans.reports import Reports
from gkm_operator.plans.room import Room
from gkm_operator.plans.snapshot import Snapshot, given_twice
from gkm_operator.plans.status import Came
from gkm_operator.plans.writer import Writer

_LOG = logging.getLogger(__name__)

PLANNING_SECONDS = 4.0
FIXING_SECONDS = 2.0
KEPT_PLANS = 3
MAX_DROPPED = 50
"""Plans that are nobody's, in one sweep."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How a sweep ended: `waiting` runs have no plan; `more` says that the next one should follow."""

    waiting: int
    more: bool


class Sweeper:
    """What outlives a sweep is memory only: it saves work, and decides nothing."""

    def __init__(
        self,
        writer: Writer,
        attempts: Attempts,
        clock: Callable[[], float] = time.monotonic,
        patience: Patience | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._writer = writer
        self._attempts = attempts
        self._clock = clock
        self._reports = Reports(writer, clock)
        self._sweeps = 0
        self._passed_over: dict[str, int] = {}
        self._made: MadeByRun = {}
        self._pace = Pace(clock)

    def sweep(self, snapshot: Snapshot) -> Swept:
        """Decide about every run of a snapshot, and act.

        Raises:
            NotLeading: nothing must be written any more.
        """
        live = snapshot.live()
        totals = {located.node.name: located.gpus for located in snapshot.nodes.survey.located}
        twice = given_twice(live, totals, snapshot.running(live))
        cases = [case_of(run, snapshot, self.patience, twice.get(run.key, "")) for run in snapshot.runs]
        self._forget(snapshot)
        room = Room(snapshot.nodes.survey, snapshot.taken, snapshot.held(live))
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
        return Swept(waiting, more=not (done and said) or self._reports.held_back)

    def _settled(self, case: Case, snapshot: Snapshot) -> None:
        """Say what stands of a run that is not planned now."""
        if case.plan is None or case.decision.act not in (Act.KEEP, Act.EXPIRE):
            return
        self._attempts.answers.forget(case.uid)
        self._reports.say(case.run, Came(case.plan, expired=case.decision.act is Act.EXPIRE))
        if telling.fresh(case.plan, snapshot.now):
            for told in telling.of_plan(case.plan):
                self._writer.tell(case.run, told, case.plan.name)

    def _plan_all(self, cases: Sequence[Case], room: Room, snapshot: Snapshot) -> bool:
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

    def _plan(self, case: Case, room: Room, snapshot: Snapshot) -> bool:
        """Plan a run; return whether others may be planned after it."""
        came = self._attempts.plan(case, room, snapshot)
        if came is None:
            return False
        self._reports.say(case.run, came)
        if came.unfit is None and came.plan is not None:
            self._pace.made(case.uid)
            self._made[case.uid] = came.plan
            for told in telling.of_plan(came.plan):
                self._writer.tell(case.run, told, came.plan.name)
        return True

    def _fix(self, cases: Iterable[Case], room: Room, snapshot: Snapshot) -> None:
        by_uid = {case.uid: case for case in cases}
        ends = self._clock() + FIXING_SECONDS
        for uid in self._attempts.answers.to_fix(by_uid, self._clock()):
            if self._clock() > ends:
                return
            if (came := self._attempts.fix(by_uid[uid], room, snapshot)) is not None:
                self._reports.say(by_uid[uid].run, came)

    def _drop_old(self, snapshot: Snapshot) -> None:
        for run in snapshot.runs:
            plans = [plan for plan in snapshot.plans.get(run.key, ()) if plan.owner == run.metadata.uid]
            for plan in plans[:-KEPT_PLANS]:
                _LOG.debug("old plan goes", extra=fields(run=str(run.key), plan=plan.name))
                self._writer.drop(plan)
        # From what outlives its Run (kubectl delete --cascade=orphan) the owner is taken; nobody else would delete it.
        orphans = [plan for plans in snapshot.plans.values() for plan in plans if not plan.owner]
        for plan in orphans[:MAX_DROPPED]:
            _LOG.info("plan of no run goes", extra=fields(run=str(plan.run), plan=plan.name))
            self._writer.drop(plan)

    def _is_due(self, case: Case) -> bool:
        """Return whether a run is planned in this sweep. A wish may wait; nodes that are lost do not."""
        decision = case.decision
        return decision.act in (Act.AFRESH, Act.AGAIN) and not (decision.wish and self._pace.hurries(case.uid))

    def _forget(self, snapshot: Snapshot) -> None:
        uids = {run.metadata.uid for run in snapshot.runs}
        self.patience.keep(uids)
        self._attempts.answers.keep(uids)
        self._reports.keep(uids)
        self._pace.keep(uids)
