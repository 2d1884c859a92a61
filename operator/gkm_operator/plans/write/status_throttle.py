"""What is written into the status of runs, and how often: what nobody waits for must not keep the API server busy."""

from collections.abc import Collection

from gkm.hoststate.pacing import Clock, MinimumInterval

from gkm_operator.plans.state.objects import WatchedRun
from gkm_operator.plans.write.status import PlanningResult, desired_status, differs_in_numbers_only
from gkm_operator.plans.write.writer import PlanWriter

MAX_REFUSALS = 50
"""Statuses of runs that do not fit, in one sweep."""
NUMBERS_SECONDS = 30.0


class StatusThrottle:
    """For the one thread that plans."""

    def __init__(self, writer: PlanWriter, clock: Clock) -> None:
        self._writer = writer
        self._now = ""
        self._left = 0
        self._numbers: MinimumInterval[str] = MinimumInterval(NUMBERS_SECONDS, clock)
        self.held_back = False

    def begin(self, now: str) -> None:
        """Begin a sweep at a time of the API."""
        self._now = now
        self._left = MAX_REFUSALS
        self.held_back = False

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        self._numbers.retain_only(uids)

    def report(self, run: WatchedRun, came: PlanningResult) -> None:
        """Write the status of a run, where it says something new, and not more often than is good."""
        standing = self._writer.status(run)
        new = desired_status(run, standing, came, self._now)
        if new == standing:
            return
        uid = run.metadata.uid
        if came.unfit is not None:
            if not self._left or (not self._numbers.has_passed(uid) and differs_in_numbers_only(standing, new)):
                self.held_back = True
                return
            self._left -= 1
        self._numbers.record(uid)
        self._writer.write_status(run, new)
