"""How far the rollout of a cache is open, from the nodes that have not finished. docs/reference/rollout.md, "Bounds".

The last open rank leaves `maxConcurrentNodes` unfinished nodes at or before it. It follows from the
reports of nodes, and never goes back for a digest: a node that has begun is not stopped. Nodes that do not finish or
fail, or that are silent, hold their places for a bounded time.
"""

import time
from heapq import nsmallest

from gkm.api.caches import Cache
from gkm.api.rollouts import LAST_RANK, RolloutStatus, rank_of
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock

from gkm_operator.caches.fleet import UnfinishedNodes
from gkm_operator.caches.totals import CacheKey

SETTLE_SECONDS = 10.0
"""Seconds to wait for the first reports about a new cache: agents report one after another."""
LONGEST_SETTLE_SECONDS = 120.0
"""Limit in seconds of that wait: 10,000 first reports take the API server a minute."""
STALL_SECONDS = 1800.0
"""Seconds without progress after which open nodes make way for others: a pull of 64 GiB at 40 MB/s."""
_REMEMBERED = 8192


def opened(cache: Cache, digest: str, unfinished: UnfinishedNodes, *, is_stalled: bool = False) -> RolloutStatus | None:
    """Return the new status.rollout of a cache; None if its spec has no rollout.

    Silent nodes are included like live ones, because they may return together. After a stall, open nodes and silent
    nodes make way for the next. When no node is left to include, all ranks are open.
    """
    policy = cache.spec.rollout
    if policy is None:
        return None
    present = open_rank(cache, digest)
    ranks = [rank_of(node, digest) for node in unfinished.live]
    if is_stalled:
        ranks = [rank for rank in ranks if rank > present]
    else:
        ranks += [rank_of(node, digest) for node in unfinished.silent]
    first = nsmallest(policy.max_concurrent_nodes, ranks)
    return RolloutStatus(digest, max(first[-1] if first else LAST_RANK, present))


def open_rank(cache: Cache, digest: str) -> str:
    """Return the last rank of a node that may pull a digest of a cache now; "" if no rank may."""
    present = cache.status.rollout
    return present.open_rank if present is not None and present.digest == digest else ""


class Stalls:
    """Measures how long the open rank of a cache's rollout has not changed. Thread-safe; keeps recent caches only.

    Its loss, by a restart, costs STALL_SECONDS.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: LRUCache[CacheKey, tuple[str, str, float]] = LRUCache(_REMEMBERED)

    def remaining(self, key: CacheKey, digest: str, rank: str) -> float:
        """Return the seconds until open nodes without progress make way for others, 0 if they do now."""
        now = self._clock()
        seen = self._seen.get(key)
        if seen is None or seen[:2] != (digest, rank):
            seen = (digest, rank, now)
            self._seen.put(key, seen)
        return max(0.0, seen[2] + STALL_SECONDS - now)


class Settling:
    """Measures how long the number of nodes that report a cache has not changed. Thread-safe; keeps recent caches only.

    Its loss, by a restart, costs SETTLE_SECONDS.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: LRUCache[CacheKey, tuple[str, int, float, float]] = LRUCache(_REMEMBERED)

    def remaining(self, key: CacheKey, digest: str, nodes: int) -> float:
        """Return the seconds until the reports of nodes about a digest have settled; 0 if they have."""
        now = self._clock()
        seen = self._seen.get(key)
        if seen is None or seen[0] != digest:
            seen = (digest, nodes, now, now)
        elif nodes > seen[1]:
            seen = (digest, nodes, now, seen[3])
        self._seen.put(key, seen)
        _, _, grown, began = seen
        return max(0.0, min(grown + SETTLE_SECONDS, began + LONGEST_SETTLE_SECONDS) - now)
