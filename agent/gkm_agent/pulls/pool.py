"""The pool of pulls: one thread per cache, a bounded number at a time. The agent can cancel each pull."""

import logging
import time
from collections.abc import Callable, Container, Mapping
from threading import Event, Thread

from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.job import Failure, PullJob
from gkm_agent.store.pointers import PointerStore, Superseded

_LOG = logging.getLogger(__name__)

MAX_PULLS = 4
"""Concurrent pulls. A pull has three connections and takes some 10 MiB. The worst image, by the description of its
entries, makes it take some 45 MiB, and four of those fit the 512 MiB of the agent (deploy/base/agent.yaml)."""
FAIR_PULL_SECONDS = 1800.0
"""The time after which a download gives its worker to a waiting cache. The next attempt resumes its partial blobs."""
STOP_SECONDS = 5.0


class PullPool:
    """The running pulls. Only one thread may use it; it sets `wake` whenever a pull ends."""

    def __init__(self, store: PointerStore, wake: Event, clock: Callable[[], float], limit: int = MAX_PULLS) -> None:
        self._store = store
        self._wake = wake
        self._clock = clock
        self._limit = limit
        self._running: dict[CacheRef, _RunningPull] = {}

    @property
    def idle(self) -> bool:
        """Return whether no pull is running."""
        return not self._running

    @property
    def pulling(self) -> Container[CacheRef]:
        """Return the caches whose pulls are running."""
        return self._running.keys()

    def running_in(self, namespace: str | None, without: CacheRef | None = None) -> int:
        """Return the number of running pulls in a namespace (None: cluster-wide), not counting `without`."""
        return sum(1 for ref in self._running if ref.namespace == namespace and ref != without)

    def has_slot_for(self, ref: CacheRef, without: CacheRef | None = None) -> bool:
        """Return whether a worker is free for a cache, or would be free without the pull of `without`.

        One namespace never gets all workers, because its registries may be slow when another namespace needs one.
        """
        running = sum(1 for other in self._running if other != without)
        return running < self._limit and self.running_in(ref.namespace, without) < max(1, self._limit - 1)

    def start(self, pull: PullJob) -> None:
        """Start a pull in a thread of its own; the caller has checked `has_slot_for`."""
        self._running[pull.wanted.ref] = _RunningPull(pull, self._wake, self._clock())

    def overdue(self) -> list[CacheRef]:
        """Return the downloads beyond FAIR_PULL_SECONDS, the longest first; an empty list while a pull is cancelled."""
        if any(running.pull.token.cancelled for running in self._running.values()):
            return []
        before = self._clock() - FAIR_PULL_SECONDS
        late = [running for running in self._running.values() if running.began < before and not running.pull.extracting]
        return [running.pull.wanted.ref for running in sorted(late, key=lambda running: running.began)]

    def preempt(self, ref: CacheRef) -> None:
        """End a pull so that another gets its worker; a later pass starts it again."""
        _LOG.info("pull preempted", extra=fields(cache=str(ref)))
        self._store.cancel(self._running[ref].pull.token)

    def cancel_unwanted(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        """Cancel the tokens of pulls whose cache is unwanted or has changed; each pull ends at its next check."""
        for ref, running in self._running.items():
            if wanted.get(ref) != running.pull.wanted and not running.pull.token.cancelled:
                self._store.cancel(running.pull.token)

    def finished(self) -> list[tuple[WantedCache, Failure | None]]:
        """Return the caches whose pulls ended by themselves since the last call, each with its failure if it failed."""
        ended = [running for running in self._running.values() if running.done]
        for running in ended:
            del self._running[running.pull.wanted.ref]
        return [(running.pull.wanted, running.failure) for running in ended if not running.superseded]

    def stop(self) -> None:
        """Cancel every pull and wait a bounded time; a pull that still runs can write nothing any more."""
        self.cancel_unwanted({})
        deadline = time.monotonic() + STOP_SECONDS
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))


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
                "pull finished",
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
