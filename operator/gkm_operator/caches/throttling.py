"""Limits on the rate of status writes and of Events."""

import time

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock, TokenBucket

from gkm_operator.caches.totals import CacheKey

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 4.0
"""A write costs the API server some 17 ms of CPU, and this process more than the events that led to it: 20 caches of
10,000 nodes that change all the time were written 20 times a second, which took a third of this process's CPU."""

_REMEMBERED = 8192

BURST = 25
REFILL_SECONDS = 300.0
"""Seconds after which an object may have another Event: 25 at once, then one in five minutes, as in client-go."""
_MAX_OBJECTS = 4096


class StatusInterval:
    """Delays writes of caches' status so that changes in quick succession share one write.

    The delay doubles, up to `longest`, for a cache that is written again within `longest` seconds. Thread-safe, because
    one worker at a time writes a cache; only the most recent caches are tracked.
    """

    def __init__(
        self, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS, clock: Clock = time.monotonic
    ) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._clock = clock
        self._written: LRUCache[CacheKey, tuple[float, float]] = LRUCache(_REMEMBERED)

    def after(self, key: CacheKey) -> float:
        """Return the seconds to wait from now before a change of a cache is written to its status."""
        when, pause = self._written.get(key) or (0.0, self._first)
        return max(self._first, when + pause - self._clock())

    def wrote(self, key: CacheKey) -> None:
        """Record a write of a cache's status."""
        now = self._clock()
        when, pause = self._written.get(key) or (0.0, 0.0)
        soon = pause and now < when + pause + self._longest
        self._written.put(key, (now, min(self._longest, 2 * pause) if soon else self._first))


class EventBudget:
    """Limits Events per object, so that a flapping node does not flood the API server.

    Thread-safe; only the most recent objects are tracked.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(_MAX_OBJECTS)

    def spend(self, uid: str) -> bool:
        """Return whether another Event about the object with this uid may be sent now; if so, use up one."""
        bucket = self._buckets.get_or_create(uid, lambda: TokenBucket(BURST, REFILL_SECONDS, self._clock))
        return bucket.try_acquire()
