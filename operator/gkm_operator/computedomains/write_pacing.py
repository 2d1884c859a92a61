"""When the annotations of a ComputeDomain may be written: once in an interval, but a mark that protects at once."""

import time
from threading import Lock

from gkm.hoststate.pacing import Clock
from gkm.kube.api import Key

INTERVAL_SECONDS = 2.0


class WritePacing:
    """Thread-safe.

    The interval of a domain begins when it is first seen, so that its first condition covers what NVIDIA's controller
    makes for it. A protecting write does not wait, and is not repeated within the interval: the watch may not have
    delivered it yet. Nothing else can be written in between, so a mark cannot fall unseen.
    """

    def __init__(self, interval: float = INTERVAL_SECONDS, clock: Clock = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._next: dict[Key, float] = {}
        self._protected: dict[Key, set[str]] = {}
        self._lock = Lock()

    def seconds(self, key: Key) -> float:
        """Return the seconds until the next write, 0 or less if it may be now."""
        with self._lock:
            now = self._clock()
            return self._next.setdefault(key, now + self._interval) - now

    def may_protect(self, key: Key, uid: str) -> bool:
        """Return whether an object of a domain was not protected in this interval."""
        with self._lock:
            return uid not in self._protected.get(key, ())

    def protected(self, key: Key, uid: str) -> None:
        """Record that an object was protected, and begin an interval."""
        with self._lock:
            self._protected.setdefault(key, set()).add(uid)
            self._next[key] = self._clock() + self._interval

    def wrote(self, key: Key) -> None:
        """Record a write, and begin an interval."""
        with self._lock:
            self._protected.pop(key, None)
            self._next[key] = self._clock() + self._interval

    def forget(self, key: Key) -> None:
        """Forget a deleted domain."""
        with self._lock:
            self._next.pop(key, None)
            self._protected.pop(key, None)
