"""How often a run is planned again because somebody wishes so: each plan is an object of up to a megabyte in etcd."""

from collections import deque
from collections.abc import Callable, Collection

BURST = 6
BURST_SECONDS = 180.0


class ReplanLimit:
    """Plans of each run, by its uid: BURST of them in BURST_SECONDS. For the one thread that plans."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: dict[str, deque[float]] = {}

    def record(self, uid: str) -> None:
        """Take in that a run got a plan."""
        self._made.setdefault(uid, deque(maxlen=BURST)).append(self._clock())

    def is_exceeded(self, uid: str) -> bool:
        """Return whether a run had as many plans lately as it may have."""
        made = self._made.get(uid)
        return made is not None and len(made) == BURST and self._clock() < made[0] + BURST_SECONDS

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        for uid in self._made.keys() - set(uids):
            del self._made[uid]
