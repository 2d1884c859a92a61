"""The few threads that pull: one a cache, a bounded number at a time, each of which can be called off."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Thread

from gkm.hoststate.names import CacheRef

from gkm_agent import logs
from gkm_agent.desk import Desk, Superseded
from gkm_agent.pull import Failure, Pull
from gkm_agent.values import WantedCache

WORKERS = 2
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A pull that ended by itself, well or not."""

    wanted: WantedCache
    failure: Failure | None


class Workers:
    """Pulls under way. Used by one thread; sets `wake` whenever a pull ends."""

    def __init__(self, desk: Desk, wake: Event, limit: int = WORKERS) -> None:
        self._desk = desk
        self._wake = wake
        self._limit = limit
        self._running: dict[CacheRef, _Running] = {}

    @property
    def free(self) -> int:
        """Return how many more pulls may be started."""
        return self._limit - len(self._running)

    @property
    def idle(self) -> bool:
        """Return whether nothing is under way."""
        return not self._running

    def pulls(self, ref: CacheRef) -> bool:
        """Return whether a cache is being pulled."""
        return ref in self._running

    def start(self, pull: Pull) -> None:
        """Begin a pull in a thread of its own; the caller has looked at `free`."""
        self._running[pull.wanted.ref] = _Running(pull, self._wake)

    def call_off(self, wanted: Mapping[CacheRef, WantedCache]) -> None:
        """Withdraw the tickets of pulls that nobody wants as they are; they end when they notice."""
        for ref, running in self._running.items():
            if wanted.get(ref) != running.pull.wanted and not running.pull.ticket.withdrawn:
                self._desk.withdraw(running.pull.ticket)

    def finished(self) -> list[Finished]:
        """Return the pulls that have ended since the last call."""
        ended = [running for running in self._running.values() if running.done]
        for running in ended:
            del self._running[running.pull.wanted.ref]
        return [Finished(running.pull.wanted, running.failure) for running in ended if not running.superseded]

    def end(self) -> None:
        """Call everything off and wait a bounded time; what a pull has done until then does no harm."""
        self.call_off({})
        deadline = time.monotonic() + STOP_SECONDS
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))


class _Running:
    """A pull and its thread. A daemon: a process that is told to end does not wait for a registry."""

    def __init__(self, pull: Pull, wake: Event) -> None:
        self.pull = pull
        self.failure: Failure | None = None
        self.superseded = False
        self.done = False
        self._wake = wake
        self.thread = Thread(target=self._run, name=f"pull {pull.wanted.ref}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        wanted = self.pull.wanted
        logs.event("pull begins", cache=str(wanted.ref), image=wanted.image)
        began = time.monotonic()
        try:
            self.failure = self.pull.run()
        except Superseded:
            self.superseded = True
        finally:
            logs.event(
                "pull ends",
                level=logging.WARNING if self.failure else logging.INFO,
                cache=str(wanted.ref),
                digest=self.pull.digest or None,
                seconds=round(time.monotonic() - began, 3),
                superseded=self.superseded or None,
                reason=str(self.failure.reason) if self.failure else None,
                why=self.failure.message if self.failure else None,
            )
            # Not "the thread has ended": whoever is woken would look before it has, and then wait for a whole turn.
            self.done = True
            self._wake.set()
