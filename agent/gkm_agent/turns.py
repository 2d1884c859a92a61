"""Whose pull comes next, and whose has lasted long enough: what pods wait for first, namespaces in turn.

Why, and where it ends: docs/decisions/0006-fairness.md.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.hoststate.names import CacheRef

from gkm_agent.tries import Tries
from gkm_agent.workers import Workers


@dataclass(frozen=True, slots=True)
class Turns:
    """The order of one turn of the agent; `waited_for` says whether a pod waits for a cache."""

    workers: Workers
    tries: Tries
    waited_for: Callable[[CacheRef], bool]

    def next(self, asks: Collection[CacheRef]) -> CacheRef | None:
        """Return which of the caches is to be pulled now, None where no worker is there for any of them."""
        return min((ref for ref in asks if self.workers.takes(ref)), key=self._place, default=None)

    def to_give_way(self, asks: Collection[CacheRef]) -> CacheRef | None:
        """Return which pull should end so that one of the caches gets its worker, None where none should."""
        overdue = self.workers.overdue()
        return next((late for late in overdue if any(self._goes_before(ref, late) for ref in asks)), None)

    def _place(self, ref: CacheRef) -> tuple[bool, int, float, float]:
        """Return the place in the queue: pods, the namespace with the fewest pulls, whoever waited longest."""
        pulls = self.workers.pulls_of(ref.namespace)
        return not self.waited_for(ref), pulls, self.tries.last_of(ref.namespace), self.tries.last(ref)

    def _goes_before(self, ref: CacheRef, late: CacheRef) -> bool:
        """Return whether a cache would get the worker of a pull that ended now, rather than that pull itself."""
        place, of_late = (
            (not self.waited_for(each), self.workers.pulls_of(each.namespace, without=late)) for each in (ref, late)
        )
        return self.workers.takes(ref, without=late) and place <= of_late
