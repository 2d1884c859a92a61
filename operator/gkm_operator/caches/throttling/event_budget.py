"""How many Events an object may have: a node that comes and goes must not fill the API server with them."""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

BURST = 25
REFILL_SECONDS = 300.0
"""As client-go's spam filter (tools/record/events_cache.go): 25 at once, then one in five minutes."""
_REMEMBERED = 4096


class EventBudget:
    """A bucket for each object. Thread-safe; of many objects only the latest are remembered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def spend(self, uid: str) -> bool:
        """Return whether one more may be told of an object now, and count it."""
        now = self._clock()
        with self._lock:
            left, then = self._buckets.get(uid, (float(BURST), now))
            left = min(float(BURST), left + (now - then) / REFILL_SECONDS)
            granted = left >= 1.0
            self._buckets[uid] = (left - 1.0 if granted else left, now)
            self._buckets.move_to_end(uid)
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return granted
