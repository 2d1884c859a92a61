"""How far the rollout of a cache is open, from the nodes that have not finished. docs/design/rollout.md, "Bounds".

The last open rank is the one that leaves `maxConcurrentNodes` unfinished nodes at or before it. It follows from the
reports of nodes alone, and never goes back for a digest: a node that has begun is not stopped.
"""

import time
from collections.abc import Collection
from heapq import nsmallest

from gkm.api.caches import Cache
from gkm.api.rollouts import LAST_RANK, RolloutStatus, rank_of
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock

from gkm_operator.caches.nodes.totals import CacheKey

SETTLE_SECONDS = 10.0
"""The agents of a cluster report a new cache one after the other; ranks among a few of them would open too much."""
LONGEST_SETTLE_SECONDS = 120.0
"""10,000 first reports take the API server a minute; a cluster in which nodes come and go must not wait for ever."""
_REMEMBERED = 8192


def opened(cache: Cache, digest: str, unfinished: Collection[str]) -> RolloutStatus | None:
    """Return the rollout that the status should have; `unfinished` are the nodes that have not finished the digest.

    When every node has finished, nothing is left to bound, and all ranks are open.
    """
    policy, present = cache.spec.rollout, cache.status.rollout
    if policy is None:
        return None
    first = nsmallest(policy.max_concurrent_nodes, (rank_of(node, digest) for node in unfinished))
    last = first[-1] if first else LAST_RANK
    is_current = present is not None and present.digest == digest
    return RolloutStatus(digest, max(last, present.open_rank) if is_current and present is not None else last)


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
