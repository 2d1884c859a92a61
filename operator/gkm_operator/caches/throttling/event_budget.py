"""A budget of Events for each object, so that a flapping node does not fill the API server with them."""

import time

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock, TokenBucket

BURST = 25
REFILL_SECONDS = 300.0
"""As client-go's spam filter (tools/record/events_cache.go): 25 at once, then one in five minutes."""
_MAX_OBJECTS = 4096


class EventBudget:
    """A token bucket for each object. Thread-safe; only the most recent objects are tracked."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(_MAX_OBJECTS)

    def spend(self, uid: str) -> bool:
        """Return whether one more Event about an object may be sent now, and count it."""
        bucket = self._buckets.get_or_create(uid, lambda: TokenBucket(BURST, REFILL_SECONDS, self._clock))
        return bucket.try_acquire()
