"""What a turn of the loop shows, as metrics: how many caches are in which state, and what is newly incompatible."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gkm.api.nodes import NodeStatus
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeRecord

from gkm_agent.telemetry import metrics

Statuses = Mapping[str | None, NodeStatus]
Finding = tuple[str | None, str, str, str]
"""A cache that fits no GPU: scope, name, digest and reason. One that is found again is the same finding."""


def states(statuses: Statuses) -> Counter[str]:
    """Return how many caches are in each state; pure."""
    return Counter(cache.state for status in statuses.values() for cache in status.caches.values())


def incompatible(statuses: Statuses) -> frozenset[Finding]:
    """Return the caches that fit no GPU; pure."""
    return frozenset(
        (scope, name, cache.digest or "", cache.reason)
        for scope, status in statuses.items()
        for name, cache in status.caches.items()
        if cache.state == CacheState.INCOMPATIBLE.value
    )


class ReconcileMetrics:
    """Remembers what was incompatible in the last turn, so that each finding counts once."""

    def __init__(self) -> None:
        self._found: frozenset[Finding] = frozenset()

    def record(self, statuses: Statuses, *, mounts: Iterable[VolumeRecord], store_bytes: int) -> None:
        """Take in what a turn came to."""
        counted = states(statuses)
        for state in CacheState:
            metrics.CACHE_STATE.labels(state.value).set(counted[state.value])
        modes = Counter(metrics.PRIVATE if mount.is_private else metrics.READ_ONLY for mount in mounts)
        for mode in metrics.MODES:
            metrics.MOUNTS.labels(mode).set(modes[mode])
        metrics.STORE_BYTES.set(store_bytes)
        found = incompatible(statuses)
        for *_, reason in found - self._found:
            metrics.incompatible(reason)
        self._found = found
