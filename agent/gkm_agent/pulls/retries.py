"""Tries that failed, and when each cache is tried again. In memory only: a restart tries at once."""

import random
from collections.abc import Callable, Container
from dataclasses import replace

from gkm.hoststate.names import CacheRef

from gkm_agent.caches import decisions
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.job import Failure


class RetrySchedule:
    """At most one failed attempt a wanted cache."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[CacheRef, Attempt] = {}
        self._last: dict[CacheRef, float] = {}
        self._last_of: dict[str | None, float] = {}

    def record_start(self, ref: CacheRef) -> None:
        """Note that a cache has its turn now."""
        self._last[ref] = self._last_of[ref.namespace] = self._clock()

    def last_start(self, ref: CacheRef) -> float:
        """Return when a cache last had its turn, 0 for never."""
        return self._last.get(ref, 0.0)

    def last_start_in(self, namespace: str | None) -> float:
        """Return when a cache of a namespace last had its turn, 0 for never."""
        return self._last_of.get(namespace, 0.0)

    def record_end(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Note how a try ended."""
        if failure is None:
            self._attempts.pop(wanted.ref, None)
            return
        self._attempts[wanted.ref] = decisions.next_attempt(
            wanted,
            self._attempts.get(wanted.ref),
            transient=failure.transient,
            now=self._clock(),
            jitter=random.random(),  # noqa: S311 -- spreads load, hides nothing
        )

    def retry_now(self, ref: CacheRef) -> None:
        """Let a cache be tried at once: what it failed for has passed."""
        if attempt := self._attempts.get(ref):
            self._attempts[ref] = replace(attempt, next_try=self._clock())

    def attempt_of(self, wanted: WantedCache) -> Attempt | None:
        """Return the failed attempt of a cache as it is wanted now."""
        attempt = self._attempts.get(wanted.ref)
        return attempt if attempt is not None and attempt.wanted == wanted else None

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget every cache that is not among `refs`."""
        for memory in (self._attempts, self._last):
            for ref in [ref for ref in memory if ref not in refs]:
                del memory[ref]
        present = {ref.namespace for ref in self._last}
        self._last_of = {namespace: last for namespace, last in self._last_of.items() if namespace in present}
