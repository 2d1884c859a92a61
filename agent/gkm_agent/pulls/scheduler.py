"""The order of pulls: first the caches that pods wait for, then a fair share for each namespace.

docs/decisions/0006-fairness.md has the reasons and the limits. A pool has one thread per cache, a bounded number at a
time; the agent can cancel each pull. Failed attempts and their next retries are in memory only: a restarted agent tries
at once.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, replace
from threading import Event, Thread

from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

from gkm_agent.caches import decisions
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.job import Failure, PullJob
from gkm_agent.store.pointers import PointerStore, Superseded

_LOG = logging.getLogger(__name__)
MAX_PULLS = 4
"""Concurrent pulls. A pull has three connections and takes some 10 MiB. The worst image, by the description of its
entries, makes it take some 45 MiB, and four of those fit the 512 MiB of the agent (deploy/base/agent.yaml)."""
FAIR_PULL_SECONDS = 1800.0
"""Seconds after which a download gives up its worker if another cache waits. The next attempt resumes the partial
blobs."""
STOP_SECONDS = 5.0


class PullPool:
    """The running pulls. Only one thread may use it; it sets `wake` whenever a pull ends."""

    def __init__(self, store: PointerStore, wake: Event, clock: Callable[[], float]) -> None:
        self._store = store
        self._wake = wake
        self._clock = clock
        self._running: dict[CacheRef, _RunningPull] = {}

    @property
    def idle(self) -> bool:
        """Return whether no pull is running."""
        return not self._running

    @property
    def pulling(self) -> Container[CacheRef]:
        """Return the caches whose pulls run now."""
        return self._running.keys()

    def running_in(self, namespace: str | None, without: CacheRef | None = None) -> int:
        """Return how many pulls of a namespace run now, except the pull of `without`.

        The namespace None stands for the cluster-wide caches.
        """
        return sum(1 for ref in self._running if ref.namespace == namespace and ref != without)

    def has_slot_for(self, ref: CacheRef, without: CacheRef | None = None) -> bool:
        """Return whether a worker is free for a cache, or would be free without the pull of `without`.

        One namespace never gets all workers, because its registries may be slow when another namespace needs one.
        """
        running = sum(1 for other in self._running if other != without)
        return running < MAX_PULLS and self.running_in(ref.namespace, without) < MAX_PULLS - 1

    def start(self, pull: PullJob) -> None:
        """Start a pull in its own thread; the caller has checked `has_slot_for`."""
        self._running[pull.wanted.ref] = _RunningPull(pull, self._wake, self._clock())

    def overdue(self) -> list[CacheRef]:
        """Return the downloads that run longer than FAIR_PULL_SECONDS, the longest first.

        Empty while a pull is being cancelled.
        """
        if any(running.pull.token.cancelled for running in self._running.values()):
            return []
        before = self._clock() - FAIR_PULL_SECONDS
        late = [running for running in self._running.values() if running.began < before and not running.pull.extracting]
        return [running.pull.wanted.ref for running in sorted(late, key=lambda running: running.began)]

    def preempt(self, ref: CacheRef) -> None:
        """End a pull so that another gets its worker; a later pass starts it again."""
        _LOG.info("pull of a cache ended to let a waiting cache pull, starts again later", extra=fields(cache=str(ref)))
        self._store.cancel(self._running[ref].pull.token)

    def cancel_unwanted(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        """Cancel the pulls of caches that are no longer wanted or have changed; each pull ends at its next check."""
        for ref, running in self._running.items():
            if wanted.get(ref) != running.pull.wanted and not running.pull.token.cancelled:
                self._store.cancel(running.pull.token)

    def finished(self) -> list[tuple[PullJob, Failure | None]]:
        """Return the pulls that have ended since the last call, each with its failure, if any."""
        ended = [running for running in self._running.values() if running.done]
        for running in ended:
            del self._running[running.pull.wanted.ref]
        return [(running.pull, running.failure) for running in ended if not running.superseded]

    def stop(self) -> None:
        """Cancel all pulls and wait a bounded time; a pull that still runs then can no longer write."""
        self.cancel_unwanted({})
        deadline = time.monotonic() + STOP_SECONDS
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))


class RetrySchedule:
    """The last failed attempt of each wanted cache, and the start of the last pull of each cache and namespace."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[CacheRef, Attempt] = {}
        self._starts: dict[CacheRef, float] = {}
        self._namespace_starts: dict[str | None, float] = {}

    def record_start(self, ref: CacheRef) -> None:
        """Record that a pull of a cache starts now."""
        self._starts[ref] = self._namespace_starts[ref.namespace] = self._clock()

    def last_start(self, ref: CacheRef) -> float:
        """Return the start of the last pull of a cache in seconds since the epoch, 0 before the first pull."""
        return self._starts.get(ref, 0.0)

    def last_start_in(self, namespace: str | None) -> float:
        """Return the start of the last pull in a namespace in seconds since the epoch, 0 before the first pull.

        The namespace None stands for the cluster-wide caches.
        """
        return self._namespace_starts.get(namespace, 0.0)

    def record_end(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Record that a pull of a cache ended; `failure` is None after a success."""
        if failure is None:
            self._attempts.pop(wanted.ref, None)
            return
        self._attempts[wanted.ref] = decisions.next_attempt(
            wanted,
            self._attempts.get(wanted.ref),
            transient=failure.transient,
            retry_after=failure.retry_after,
            now=self._clock(),
            jitter=random.random(),  # noqa: S311 -- spreads load only
        )

    def retry_now(self, ref: CacheRef) -> None:
        """Allow the next attempt for a cache at once, because the cause of its failure is gone."""
        if attempt := self._attempts.get(ref):
            self._attempts[ref] = replace(attempt, next_try=self._clock())

    def retry_all_now(self) -> None:
        """Allow the next attempt for every cache at once."""
        for ref in list(self._attempts):
            self.retry_now(ref)

    def attempt_of(self, wanted: WantedCache) -> Attempt | None:
        """Return the last failed attempt for a cache, None if the cache object has changed since."""
        attempt = self._attempts.get(wanted.ref)
        return attempt if attempt is not None and attempt.wanted == wanted else None

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget the attempts for every cache that is not among `refs`."""
        for memory in (self._attempts, self._starts):
            for ref in [ref for ref in memory if ref not in refs]:
                del memory[ref]
        present = {ref.namespace for ref in self._starts}
        starts = self._namespace_starts.items()
        self._namespace_starts = {namespace: start for namespace, start in starts if namespace in present}


@dataclass(frozen=True, slots=True)
class PullScheduler:
    """Chooses the order of pulls in one reconcile pass; `is_awaited` returns whether a pod waits for a cache."""

    pool: PullPool
    retries: RetrySchedule
    is_awaited: Callable[[CacheRef], bool]

    def next_pull(self, candidates: Collection[CacheRef]) -> CacheRef | None:
        """Return the cache to pull now, None if no worker is free for any candidate."""
        return min((ref for ref in candidates if self.pool.has_slot_for(ref)), key=self._priority, default=None)

    def pull_to_preempt(self, candidates: Collection[CacheRef]) -> CacheRef | None:
        """Return the overdue pull that must end so that a candidate gets its worker, None if no pull must end."""
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


class _RunningPull:
    """A pull and its thread. The thread is a daemon, so a stopping process does not wait for a registry."""

    def __init__(self, pull: PullJob, wake: Event, began: float) -> None:
        self.pull = pull
        self.began = began
        self.failure: Failure | None = None
        self.superseded = False
        self.done = False
        self._wake = wake
        self.thread = Thread(target=self._run, name=f"pull {pull.wanted.ref}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        wanted = self.pull.wanted
        _LOG.info("pull started", extra=fields(cache=str(wanted.ref), image=wanted.image))
        began = time.monotonic()
        try:
            self.failure = self.pull.run()
        except Superseded:
            self.superseded = True
        finally:
            _LOG.log(
                logging.WARNING if self.failure else logging.INFO,
                "pull failed" if self.failure else "pull finished",
                extra=fields(
                    cache=str(wanted.ref),
                    digest=self.pull.digest or None,
                    seconds=round(time.monotonic() - began, 3),
                    superseded=self.superseded or None,
                    reason=str(self.failure.reason) if self.failure else None,
                    why=self.failure.message if self.failure else None,
                ),
            )
            # A flag instead of `Thread.is_alive`: the woken loop may check before the thread has ended.
            self.done = True
            self._wake.set()
