"""When the annotations of a ComputeDomain may be written: paced, but a mark that protects at once.

NVIDIA's controller reconciles ten times a second over all domains, and a write to a ComputeDomain takes one of these.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

from gkm.hoststate.pacing import Clock
from gkm.kube.api import Key

INTERVAL_SECONDS = 2.0
FIGURES_SECONDS = 15.0
"""The pause before a write that changes figures only: the number of pods, or of nodes."""


@dataclass(slots=True)
class _Times:
    first: float
    last: float
    protected: set[str] = field(default_factory=set)


class WritePacing:
    """Thread-safe.

    A protecting write does not wait, and is not repeated before the next paced one: the watch may not have delivered it
    yet. Nothing else is written in between, so a mark cannot fall unseen.
    """

    def __init__(
        self,
        interval: float = INTERVAL_SECONDS,
        figures: float = FIGURES_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._interval = interval
        self._figures = figures
        self._clock = clock
        self._times: dict[Key, _Times] = {}
        self._lock = Lock()

    def seconds(self, key: Key, *, figures_only: bool) -> float:
        """Return the seconds until a paced write, 0 or less if it may be now."""
        with self._lock:
            pause = self._figures if figures_only else self._interval
            return self._of(key).last + pause - self._clock()

    def age(self, key: Key) -> float:
        """Return the seconds since a domain was first seen."""
        with self._lock:
            return self._clock() - self._of(key).first

    def unprotected(self, key: Key, uids: Iterable[str]) -> set[str]:
        """Return the objects of a domain that were not protected since its last paced write."""
        with self._lock:
            return set(uids) - self._of(key).protected

    def wrote(self, key: Key, protected: Iterable[str] = ()) -> None:
        """Record a write: a paced one, or one that protected these objects."""
        with self._lock:
            times = self._of(key)
            times.last = self._clock()
            uids = set(protected)
            times.protected = times.protected | uids if uids else uids

    def forget(self, key: Key) -> None:
        """Forget a deleted domain."""
        with self._lock:
            self._times.pop(key, None)

    def _of(self, key: Key) -> _Times:
        now = self._clock()
        return self._times.setdefault(key, _Times(now, now))
