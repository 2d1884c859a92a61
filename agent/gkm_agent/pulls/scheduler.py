"""The order of pulls: caches that pods wait for come first, then namespaces share the workers.

docs/decisions/0006-fairness.md has the reasons and the limits.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.hoststate.names import CacheRef

from gkm_agent.pulls.pool import PullPool
from gkm_agent.pulls.retries import RetrySchedule


@dataclass(frozen=True, slots=True)
class PullScheduler:
    """The order of pulls in one reconcile pass; `is_awaited` returns whether a pod waits for a cache."""

    pool: PullPool
    retries: RetrySchedule
    is_awaited: Callable[[CacheRef], bool]

    def next_pull(self, candidates: Collection[CacheRef]) -> CacheRef | None:
        """Return the cache to pull now, None if no worker is free for any candidate."""
        return min((ref for ref in candidates if self.pool.has_slot_for(ref)), key=self._priority, default=None)

    def pull_to_preempt(self, candidates: Collection[CacheRef]) -> CacheRef | None:
        """Return the overdue pull that should give its worker to a candidate, None if no pull should."""
        overdue = self.pool.overdue()
        return next((late for late in overdue if any(self._precedes(ref, late) for ref in candidates)), None)

    def _priority(self, ref: CacheRef) -> tuple[bool, int, float, float]:
        """Return the sort key: awaited by a pod, fewest pulls in the namespace, longest time since the last start."""
        pulls = self.pool.running_in(ref.namespace)
        return not self.is_awaited(ref), pulls, self.retries.last_start_in(ref.namespace), self.retries.last_start(ref)

    def _precedes(self, ref: CacheRef, late: CacheRef) -> bool:
        """Return whether a cache would get the worker of an overdue pull, rather than that pull itself."""
        rank, late_rank = (
            (not self.is_awaited(each), self.pool.running_in(each.namespace, without=late)) for each in (ref, late)
        )
        return self.pool.has_slot_for(ref, without=late) and rank <= late_rank
