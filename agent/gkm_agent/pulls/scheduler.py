"""Whose pull comes next, and whose has lasted long enough: what pods wait for first, namespaces in turn.

Why, and where it ends: docs/decisions/0006-fairness.md.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.hoststate.names import CacheRef

from gkm_agent.pulls.pool import PullPool
from gkm_agent.pulls.retries import RetrySchedule


@dataclass(frozen=True, slots=True)
class PullScheduler:
    """The order of one turn of the agent; `waited_for` says whether a pod waits for a cache."""

    pool: PullPool
    retries: RetrySchedule
    is_awaited: Callable[[CacheRef], bool]

    def next_pull(self, asks: Collection[CacheRef]) -> CacheRef | None:
        """Return which of the caches is to be pulled now, None where no worker is there for any of them."""
        return min((ref for ref in asks if self.pool.has_slot_for(ref)), key=self._priority, default=None)

    def pull_to_preempt(self, asks: Collection[CacheRef]) -> CacheRef | None:
        """Return which pull should end so that one of the caches gets its worker, None where none should."""
        overdue = self.pool.overdue()
        return next((late for late in overdue if any(self._precedes(ref, late) for ref in asks)), None)

    def _priority(self, ref: CacheRef) -> tuple[bool, int, float, float]:
        """Return the place in the queue: pods, the namespace with the fewest pulls, whoever waited longest."""
        pulls = self.pool.running_in(ref.namespace)
        return not self.is_awaited(ref), pulls, self.retries.last_start_in(ref.namespace), self.retries.last_start(ref)

    def _precedes(self, ref: CacheRef, late: CacheRef) -> bool:
        """Return whether a cache would get the worker of a pull that ended now, rather than that pull itself."""
        place, of_late = (
            (not self.is_awaited(each), self.pool.running_in(each.namespace, without=late)) for each in (ref, late)
        )
        return self.pool.has_slot_for(ref, without=late) and place <= of_late
