"""How far apart the statuses of one cache are written: at once where it is quiet, seldom where it never is."""

import time
from collections.abc import Callable
from threading import Lock

from gkm.hoststate.lru import LRUCache

from gkm_operator.caches.nodes.totals import CacheKey

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 4.0
"""A write costs the API server some 17 ms of CPU (design/runtime.md), and us more than the events that led to it: 20
caches of 10,000 nodes that change without end were written 20 times a second, which was a third of all our time."""

_REMEMBERED = 8192


class StatusInterval:
    """Tells when a change is written: after `first` seconds, so that what comes with it is written with it.

    Whoever is written again within `longest` seconds waits twice as long as before, `longest` at most. Thread-safe; of
    many caches only the latest are remembered.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._clock = clock
        self._written: LRUCache[CacheKey, tuple[float, float]] = LRUCache(_REMEMBERED)
        self._lock = Lock()

    def after(self, key: CacheKey) -> float:
        """Return in how many seconds a change that was seen now is written."""
        with self._lock:
            when, pause = self._written.get(key) or (0.0, self._first)
        return max(self._first, when + pause - self._clock())

    def wrote(self, key: CacheKey) -> None:
        """Note that the status of a cache was written."""
        now = self._clock()
        with self._lock:
            when, pause = self._written.get(key) or (0.0, 0.0)
            soon = pause and now < when + pause + self._longest
            self._written.put(key, (now, min(self._longest, 2 * pause) if soon else self._first))
