"""The few threads that pull: one a cache, a bounded number at a time, each of which can be called off."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread

from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.job import Failure, PullJob
from gkm_agent.store.pointers import PointerStore, Superseded

_LOG = logging.getLogger(__name__)

MAX_PULLS = 4
"""Pulls at a time. Each has three connections, and takes some 10 MiB; the worst that an image can make of it, mostly by
the description of its entries, is some 45 MiB, and four of those fit the 512 MiB of the agent (deploy/base/agent.yaml;
tests/hostile/images/test_worst_pulls.py)."""
FAIR_PULL_SECONDS = 1800.0
"""A download that has run so long gives its worker to who waits. What came of its blobs stays, and is gone on with."""
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FinishedPull:
    """A pull that ended by itself, well or not."""

    wanted: WantedCache
    failure: Failure | None


class PullPool:
    """Pulls under way. Used by one thread; sets `wake` whenever a pull ends."""

    def __init__(self, store: PointerStore, wake: Event, clock: Callable[[], float], limit: int = MAX_PULLS) -> None:
        self._store = store
        self._wake = wake
        self._clock = clock
        self._limit = limit
        self._running: dict[CacheRef, _RunningPull] = {}

    @property
    def idle(self) -> bool:
        """Return whether nothing is under way."""
        return not self._running

    def is_pulling(self, ref: CacheRef) -> bool:
        """Return whether a cache is being pulled."""
        return ref in self._running

    def running_in(self, namespace: str | None, without: CacheRef | None = None) -> int:
        """Return how many caches of a namespace (None: cluster-wide) are being pulled, one of them not counted."""
        return sum(1 for ref in self._running if ref.namespace == namespace and ref != without)

    def has_slot_for(self, ref: CacheRef, without: CacheRef | None = None) -> bool:
        """Return whether the pull of a cache may be started, now or if one pull were not there.

        One namespace never has all workers: nobody can know how slow its registries will be when another comes.
        """
        running = sum(1 for other in self._running if other != without)
        return running < self._limit and self.running_in(ref.namespace, without) < max(1, self._limit - 1)

    def start(self, pull: PullJob) -> None:
        """Begin a pull in a thread of its own; the caller has asked whether it is taken."""
        self._running[pull.wanted.ref] = _RunningPull(pull, self._wake, self._clock())

    def overdue(self) -> list[CacheRef]:
        """Return the downloads that have run longer than is fair, the longest first; none while one is being ended."""
        if any(running.pull.token.cancelled for running in self._running.values()):
            return []
        before = self._clock() - FAIR_PULL_SECONDS
        late = [each for each in self._running.values() if each.began < before and not each.pull.extracting]
        return [running.pull.wanted.ref for running in sorted(late, key=lambda running: running.began)]

    def preempt(self, ref: CacheRef) -> None:
        """End a pull for the sake of another; it is asked for again like any that nobody has begun."""
        _LOG.info("pull gives way", extra=fields(cache=str(ref)))
        self._store.cancel(self._running[ref].pull.token)

    def cancel_unwanted(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        """Withdraw the tickets of pulls that nobody wants as they are; they end when they notice."""
        for ref, running in self._running.items():
            if wanted.get(ref) != running.pull.wanted and not running.pull.token.cancelled:
                self._store.cancel(running.pull.token)

    def finished(self) -> list[FinishedPull]:
        """Return the pulls that have ended since the last call."""
        ended = [running for running in self._running.values() if running.done]
        for running in ended:
            del self._running[running.pull.wanted.ref]
        return [FinishedPull(running.pull.wanted, running.failure) for running in ended if not running.superseded]

    def stop(self) -> None:
        """Call everything off and wait a bounded time; what a pull has done until then does no harm."""
        self.cancel_unwanted({})
        deadline = time.monotonic() + STOP_SECONDS
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))


class _RunningPull:
    """A pull and its thread. A daemon: a process that is told to end does not wait for a registry."""

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
        _LOG.info("pull begins", extra=fields(cache=str(wanted.ref), image=wanted.image))
        began = time.monotonic()
        try:
            self.failure = self.pull.run()
        except Superseded:
            self.superseded = True
        finally:
            _LOG.log(
                logging.WARNING if self.failure else logging.INFO,
                "pull ends",
                extra=fields(
                    cache=str(wanted.ref),
                    digest=self.pull.digest or None,
                    seconds=round(time.monotonic() - began, 3),
                    superseded=self.superseded or None,
                    reason=str(self.failure.reason) if self.failure else None,
                    why=self.failure.message if self.failure else None,
                ),
            )
            # Not "the thread has ended": whoever is woken would look before it has, and then wait for a whole turn.
            self.done = True
            self._wake.set()
