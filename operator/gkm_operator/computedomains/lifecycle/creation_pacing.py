"""When ComputeDomains may be created: a namespace has a burst, and then a rate.

NVIDIA's controller reconciles ten times a second over all domains, and three times for each new one. A namespace that
creates fewer than NVIDIA's controller finishes leaves room for the domains of others.
"""

import random
import time
from collections.abc import Hashable
from threading import Lock

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock

BURST = 300
"""Creations of a namespace at once: 90 seconds of NVIDIA's controller."""
PER_SECOND = 3.0
BATCH = 10
"""Creations that a workload reserves at a time, so that many workloads of a namespace take turns."""
LONGEST_SECONDS = 120.0
"""Reservations reach no further: workloads may be deleted before they use theirs."""
_ROUNDING = 1e-3
_MAX_NAMESPACES, _MAX_RESERVED = 4096, 16384


class CreationPacing:
    """Thread-safe for different workloads; only the most recent namespaces are tracked."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._paid_until: LRUCache[str, float] = LRUCache(_MAX_NAMESPACES)
        """When the creations of a namespace so far would have been made at the rate."""
        self._reserved: LRUCache[Hashable, tuple[float, int]] = LRUCache(_MAX_RESERVED)
        self._lock = Lock()

    def seconds(self, namespace: str, workload: Hashable, missing: int) -> float:
        """Return 0.0 if one domain of a workload that lacks `missing` may be created now: it counts.

        Else return the seconds until some may be, which are reserved.
        """
        now = self._clock()
        with self._lock:
            due, number = self._reserved.get(workload) or (0.0, 0)
            if number:
                if due <= now:
                    self._reserved.put(workload, (due, number - 1))
                return max(due - now, 0.0)
            rested = now - BURST / PER_SECOND
            paid = max(self._paid_until.get_or_create(namespace, lambda: rested), rested)
            number = min(max(missing, 1), BATCH)
            if paid + 1 / PER_SECOND <= now + _ROUNDING:
                self._paid_until.put(namespace, paid + 1 / PER_SECOND)
                return 0.0
            wait = paid + number / PER_SECOND - now
            if wait > LONGEST_SECONDS:
                return LONGEST_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load, hides nothing
            self._paid_until.put(namespace, now + wait)
            self._reserved.put(workload, (now + wait, number))
            return wait
