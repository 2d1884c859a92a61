"""Limit how often ComputeDomains are created, and how often their annotations are written.

NVIDIA's controller reconciles ten times a second over all domains, three times for each new one, and a write to a
ComputeDomain takes one of these. So annotations are paced, but a mark that protects is written at once. A namespace has
a burst of creations, and then a rate: a namespace that creates fewer than NVIDIA's controller finishes leaves time for
others.
"""

import random
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Key

INTERVAL_SECONDS = 2.0
FIGURES_SECONDS = 15.0
"""Seconds before a write that only changes numbers of pods or nodes."""


@dataclass(slots=True)
class _Times:
    first: float
    last: float
    protected: set[str] = field(default_factory=set)


class WritePacing:
    """Limits writes of annotations for each ComputeDomain. Thread-safe.

    A protecting write does not wait, and is not repeated before the next paced one: the watch may not have delivered it
    yet. No other write comes in between, so a mark cannot fall unseen.
    """

    def __init__(
        self, interval: float = INTERVAL_SECONDS, figures: float = FIGURES_SECONDS, clock: Clock = time.monotonic
    ) -> None:
        self._interval = interval
        self._figures = figures
        self._clock = clock
        self._times: dict[Key, _Times] = {}
        self._lock = Lock()

    def seconds(self, key: Key, *, figures_only: bool) -> float:
        """Return the seconds until a normal write of a domain's annotations; 0 or less if it may be now."""
        with self._lock:
            pause = self._figures if figures_only else self._interval
            return self._of(key).last + pause - self._clock()

    def age(self, key: Key) -> float:
        """Return the seconds since this process first saw a ComputeDomain."""
        with self._lock:
            return self._clock() - self._of(key).first

    def unprotected(self, key: Key, uids: Iterable[str]) -> set[str]:
        """Return the uids of a domain's objects that no write has protected since the last normal write."""
        with self._lock:
            return set(uids) - self._of(key).protected

    def wrote(self, key: Key, protected: Iterable[str] = ()) -> None:
        """Record a write of a domain's annotations: a normal one, or one that protected objects with these uids."""
        with self._lock:
            times = self._of(key)
            times.last = self._clock()
            uids = set(protected)
            times.protected = times.protected | uids if uids else uids

    def forget(self, key: Key) -> None:
        """Forget the times of a deleted ComputeDomain."""
        with self._lock:
            self._times.pop(key, None)

    def _of(self, key: Key) -> _Times:
        now = self._clock()
        return self._times.setdefault(key, _Times(now, now))


CREATION_BURST = 300
"""Limit of creations in a namespace at once: NVIDIA's controller needs 90 seconds for them."""
CREATIONS_PER_SECOND = 3.0
CREATION_BATCH = 10
"""Number of creations that a workload reserves at a time, so that workloads of a namespace take turns."""
LONGEST_SECONDS = 120.0
"""Limit in seconds of reservations in advance: workloads may be deleted before they use theirs."""
_ROUNDING = 1e-3
_MAX_NAMESPACES, _MAX_RESERVED = 4096, 16384


class CreationPacing:
    """Limits creations of ComputeDomains per namespace. Thread-safe for different workloads."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._paid_until: LRUCache[str, float] = LRUCache(_MAX_NAMESPACES)
        """When the creations of a namespace so far would have been made at the rate."""
        self._reserved: LRUCache[Hashable, tuple[float, int]] = LRUCache(_MAX_RESERVED)
        self._lock = Lock()

    def seconds(self, namespace: str, workload: Hashable, missing: int) -> float:
        """Return 0.0 if a ComputeDomain may be created now, and take it from the namespace's budget.

        Otherwise return the seconds until creations are possible, and reserve up to `missing` of them for the workload.
        A wait above LONGEST_SECONDS is cut, and reserves no creation.
        """
        now = self._clock()
        with self._lock:
            due, number = self._reserved.get(workload) or (0.0, 0)
            if number:
                if due <= now:
                    self._reserved.put(workload, (due, number - 1))
                return max(due - now, 0.0)
            rested = now - CREATION_BURST / CREATIONS_PER_SECOND
            paid = max(self._paid_until.get_or_create(namespace, lambda: rested), rested)
            number = min(max(missing, 1), CREATION_BATCH)
            if paid + 1 / CREATIONS_PER_SECOND <= now + _ROUNDING:
                self._paid_until.put(namespace, paid + 1 / CREATIONS_PER_SECOND)
                return 0.0
            wait = paid + number / CREATIONS_PER_SECOND - now
            if wait > LONGEST_SECONDS:
                return LONGEST_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load only
            self._paid_until.put(namespace, now + wait)
            self._reserved.put(workload, (now + wait, number))
            return wait
