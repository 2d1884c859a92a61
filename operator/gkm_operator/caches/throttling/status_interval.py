"""The interval between two writes of a cache's status: longer for a cache that changes all the time."""

import time
from collections.abc import Callable
from threading import Lock

from gkm.hoststate.lru import LRUCache

from gkm_operator.caches.nodes.totals import CacheKey

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 4.0
"""A write costs the API server some 17 ms of CPU, and this process more than the events that led to it: 20 caches of
10,000 nodes that change all the time were written 20 times a second, which took a third of this process's CPU."""

_REMEMBERED = 8192


class StatusInterval:
    """Delays the write of a change by `first` seconds, so that changes which follow at once share the write.

    The delay doubles, up to `longest`, for a cache that is written again within `longest` seconds. Thread-safe; only
    the most recent caches are tracked.
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
        """Return the seconds until a change that was seen now is written."""
        with self._lock:
            when, pause = self._written.get(key) or (0.0, self._first)
        return max(self._first, when + pause - self._clock())

    def wrote(self, key: CacheKey) -> None:
        """Record a write of a cache's status."""
        now = self._clock()
        with self._lock:
            when, pause = self._written.get(key) or (0.0, 0.0)
            soon = pause and now < when + pause + self._longest
            self._written.put(key, (now, min(self._longest, 2 * pause) if soon else self._first))
