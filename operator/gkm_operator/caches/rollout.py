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
"""The agents of a cluster report a new cache one after the other; ranks among a few of them would open too much."""
LONGEST_SETTLE_SECONDS = 120.0
"""10,000 first reports take the API server a minute; a cluster in which nodes come and go must not wait forever."""
STALL_SECONDS = 1800.0
"""The nodes that are open hold their places this long without progress of any: a pull of 64 GiB at 40 MB/s."""
_REMEMBERED = 8192


def opened(cache: Cache, digest: str, unfinished: UnfinishedNodes, *, is_stalled: bool = False) -> RolloutStatus | None:
    """Return the rollout that the status should have.

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
    """Return the last rank that is open for a digest now, "" if no rank is."""
    present = cache.status.rollout
    return present.open_rank if present is not None and present.digest == digest else ""


class Stalls:
    """How long the open rank of a cache has been the same. Thread-safe; for the most recent caches only.

    Its loss, by a restart, costs STALL_SECONDS.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: LRUCache[CacheKey, tuple[str, str, float]] = LRUCache(_REMEMBERED)

    def remaining(self, key: CacheKey, digest: str, rank: str) -> float:
        """Return the seconds until the open nodes of a digest make way for the next, 0 if they do."""
        now = self._clock()
        seen = self._seen.get(key)
        if seen is None or seen[:2] != (digest, rank):
            seen = (digest, rank, now)
            self._seen.put(key, seen)
        return max(0.0, seen[2] + STALL_SECONDS - now)


class Settling:
    """How long the number of nodes that report a cache has been the same. Thread-safe; for the most recent caches only.

    Its loss, by a restart, costs SETTLE_SECONDS.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: LRUCache[CacheKey, tuple[str, int, float, float]] = LRUCache(_REMEMBERED)

    def remaining(self, key: CacheKey, digest: str, nodes: int) -> float:
        """Return the seconds until the reports of a digest by at least one node have settled, 0 if they have."""
        now = self._clock()
        seen = self._seen.get(key)
        if seen is None or seen[0] != digest:
            seen = (digest, nodes, now, now)
        elif nodes > seen[1]:
            seen = (digest, nodes, now, seen[3])
        self._seen.put(key, seen)
        _, _, grown, began = seen
        return max(0.0, min(grown + SETTLE_SECONDS, began + LONGEST_SETTLE_SECONDS) - now)
