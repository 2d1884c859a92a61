"""What is written into the status of runs, and how often: what nobody waits for must not keep the API server busy."""

from collections.abc import Callable, Collection

from gkm_operator.plans.objects import WatchedRun
from gkm_operator.plans.status import Came, only_numbers, wanted
from gkm_operator.plans.writer import Writer

MAX_REFUSALS = 50
"""Statuses of runs that do not fit, in one sweep."""
NUMBERS_SECONDS = 30.0


class Reports:
    """For the one thread that plans."""

    def __init__(self, writer: Writer, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self._now = ""
        self._left = 0
        self._said: dict[str, float] = {}
        self.held_back = False

    def begin(self, now: str) -> None:
        """Begin a sweep at a time of the API."""
        self._now = now
        self._left = MAX_REFUSALS
        self.held_back = False

    def keep(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        for uid in self._said.keys() - set(uids):
            del self._said[uid]

    def say(self, run: WatchedRun, came: Came) -> None:
        """Write the status of a run, where it says something new, and not more often than is good."""
        standing = self._writer.standing(run)
        new = wanted(run, standing, came, self._now)
        if new == standing:
            return
        uid, now = run.metadata.uid, self._clock()
        if came.unfit is not None:
            early = now < self._said.get(uid, float("-inf")) + NUMBERS_SECONDS
            if not self._left or (early and only_numbers(standing, new)):
                self.held_back = True
                return
            self._left -= 1
        self._said[uid] = now
        self._writer.say(run, new)
