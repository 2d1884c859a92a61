"""The failed attempts of caches and their next retries. In memory only: a restarted agent tries at once."""

import random
from collections.abc import Callable, Container
from dataclasses import replace

from gkm.hoststate.names import CacheRef

from gkm_agent.caches import decisions
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.job import Failure


class RetrySchedule:
    """At most one failed attempt per wanted cache, and the start of the last pull per cache and namespace."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[CacheRef, Attempt] = {}
        self._starts: dict[CacheRef, float] = {}
        self._namespace_starts: dict[str | None, float] = {}

    def record_start(self, ref: CacheRef) -> None:
        """Record that a pull of a cache starts now."""
        self._starts[ref] = self._namespace_starts[ref.namespace] = self._clock()

    def last_start(self, ref: CacheRef) -> float:
        """Return the start of the last pull of a cache, 0 if it had none."""
        return self._starts.get(ref, 0.0)

    def last_start_in(self, namespace: str | None) -> float:
        """Return the start of the last pull in a namespace, 0 if it had none."""
        return self._namespace_starts.get(namespace, 0.0)

    def record_end(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Record the end of an attempt; None is a success."""
        if failure is None:
            self._attempts.pop(wanted.ref, None)
            return
        self._attempts[wanted.ref] = decisions.next_attempt(
            wanted,
            self._attempts.get(wanted.ref),
            transient=failure.transient,
            retry_after=failure.retry_after,
            now=self._clock(),
            jitter=random.random(),  # noqa: S311 -- spreads load, hides nothing
        )

    def retry_now(self, ref: CacheRef) -> None:
        """Let a cache be tried at once: the cause of its failure has passed."""
        if attempt := self._attempts.get(ref):
            self._attempts[ref] = replace(attempt, next_try=self._clock())

    def attempt_of(self, wanted: WantedCache) -> Attempt | None:
        """Return the failed attempt of a cache, None if the wanted cache has changed since."""
        attempt = self._attempts.get(wanted.ref)
        return attempt if attempt is not None and attempt.wanted == wanted else None

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Drop every cache that is not among `refs`."""
        for memory in (self._attempts, self._starts):
            for ref in [ref for ref in memory if ref not in refs]:
                del memory[ref]
        present = {ref.namespace for ref in self._starts}
        starts = self._namespace_starts.items()
        self._namespace_starts = {namespace: start for namespace, start in starts if namespace in present}
