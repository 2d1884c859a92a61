"""The frame of a controller: what its threads do from start to shutdown, in one order for all controllers.

1. `work` starts one thread, which starts the watches, and waits until every list is complete: to half a list, a
   controller would answer with deletions.
2. Only then it starts the queues, whose workers write. A controller that does more overrides `run`.
3. `stop` prevents new reconciles, and returns at once.
4. `join` waits for the requests that are under way.
5. `close_watches` ends the watches: no thread reads them any more.

`stop_all` does 3 and 4, and `close_watches` 5, for all controllers of a process in a bounded time. A write that begins
later, because a thread did not end in that time, is refused by the client (gkm.kube.client.connect).
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Protocol, TypeVar

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry, WorkQueue

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

JOIN_SECONDS = 5.0
"""Seconds for the running requests of all controllers to end."""
WATCHES_SECONDS = 2.0
"""Seconds for all watches to end."""
POLL_SECONDS = 0.05


class StartedWatch(Protocol):
    """A watch that a controller starts: a Reflector, or one reader's Selection of a shared watch."""

    @property
    def synced(self) -> Event:
        """Return the event that is set after the first complete list."""

    def start(self) -> None:
        """Start the watch, unless it has started."""

    def close(self, seconds: float = 5.0) -> None:
        """End the watch, and wait at most `seconds` for its thread to end."""


class WatchSet:
    """The started watches of one controller. Only one thread may use it, except `synced`."""

    def __init__(self) -> None:
        self._started: list[StartedWatch] = []

    def __contains__(self, reflector: StartedWatch) -> bool:
        """Return whether a watch has started."""
        return reflector in self._started

    @property
    def synced(self) -> bool:
        """Return whether every started watch has a complete list; False if no watch has started."""
        return bool(self._started) and all(reflector.synced.is_set() for reflector in self._started)

    def start(self, *reflectors: StartedWatch) -> None:
        """Start the watches that have not started yet."""
        for reflector in reflectors:
            if reflector not in self._started:
                self._started.append(reflector)
                reflector.start()

    def close(self, seconds: float) -> None:
        """End all watches; wait at most `seconds` in total."""
        end(self._started, seconds)


def end(reflectors: Iterable[StartedWatch], seconds: float) -> None:
    """End several watches in parallel; wait at most `seconds` in total."""
    deadline, ending = time.monotonic() + seconds, list(reflectors)
    for reflector in ending:
        reflector.close(0.0)
    for reflector in ending:
        reflector.close(max(0.0, deadline - time.monotonic()))


class Controller:
    """Base class of controllers: a thread, watches and queues. A subclass provides these, and may override `run`."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self.name = name
        self.enabled = enabled
        """Whether `work` starts anything."""
        self.watches = WatchSet()
        self.queues: list[WorkQueue[Any]] = []
        self.ended = True
        """Whether all threads had ended when `join` returned."""
        self._stop = Event()
        self._wake = Event()
        self._thread = Thread(target=self.run, name=name, daemon=True)

    @property
    def is_quiet(self) -> bool:
        """Return whether no write of this controller can still arrive, so that the next leader may write.

        Call it after `join`. A request that arrives late is refused for its old version. Override it where that is not
        enough.
        """
        return True

    @property
    def depths(self) -> Mapping[str, Callable[[], int]]:
        """Return a function for each queue, by its name, that returns the number of waiting keys."""
        return {queue.name: queue.__len__ for queue in self.queues}

    def reflectors(self) -> Sequence[StartedWatch]:
        """Return the watches that `run` starts, in order."""
        return ()

    def work(self) -> None:
        """Start the controller's thread if the controller is enabled.

        Return at once, even if the API server is down.
        """
        if self.enabled:
            self._thread.start()

    def run(self) -> None:
        """Start the watches, wait for their complete lists, then start the queues; runs in the controller's thread."""
        self.watches.start(*self.reflectors())
        if self.wait(lambda: not self.reflectors() or self.watches.synced):
            self.start_queues()

    def start_queues(self) -> None:
        """Start the workers of the queues; all lists must be complete."""
        _LOG.info("lists of a controller complete, it starts to work", extra=fields(controller=self.name))
        for queue in self.queues:
            queue.start()

    def wait(self, condition: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Wait at most `seconds` until `condition` returns True; return whether it does. `stop` ends the wait."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline or self._stop.wait(POLL_SECONDS):
                return False
        return True

    def attempt(
        self, act: Callable[[], T], backoff: Backoff, failure: str = "controller failed, tried again"
    ) -> T | None:
        """Call `act` until it succeeds and return its result; return None if `stop` is called first.

        `failure` is the event in the log: of an ApiError or Retry when its text changes, of another error each time.
        The thread survives every error: no other code would start it again.
        """
        failures, last, after = 0, "", 0.0
        while True:
            self._wake.clear()
            try:
                return act()
            except (ApiError, Retry) as error:
                failures, after = failures + 1, error.retry_after
                if str(error) != last:
                    last = str(error)
                    _LOG.warning(failure, extra=fields(controller=self.name, failures=failures, why=last))
            except Exception:  # noqa: BLE001 -- see above
                failures, after = failures + 1, 0.0
                _LOG.exception(failure, extra=fields(controller=self.name, failures=failures))
            if self._stop.wait(backoff.pause(failures, after)):
                return None

    def repeat(
        self,
        act: Callable[[], float],
        backoff: Backoff,
        *,
        least: float = 0.0,
        failure: str = "controller failed, tried again",
    ) -> None:
        """Call `act` again and again until `stop`; it returns the seconds until its next call.

        `wake` shortens them to `least`. Errors are retried as by `attempt`.
        """
        while (pause := self.attempt(act, backoff, failure)) is not None:
            if self._stop.wait(min(least, pause)):
                return
            self._wake.wait(max(0.0, pause - least))
            if self._stop.is_set():
                return

    def wake(self) -> None:
        """Make `repeat` call its function before its pause ends."""
        self._wake.set()

    def stop(self) -> None:
        """Prevent new reconciles of this controller and return at once."""
        self._stop.set()
        self._wake.set()
        for queue in self.queues:
            queue.stop()

    def join(self, deadline: float) -> None:
        """Wait for this controller's running requests, at most until `deadline` (time.monotonic())."""
        ended = [queue.close(max(0.0, deadline - time.monotonic())) for queue in self.queues]
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self.ended = all(ended) and not self._thread.is_alive()

    def close_watches(self, seconds: float) -> None:
        """End the controller's watches; wait at most `seconds` in total."""
        self.watches.close(seconds)

    def close(self) -> bool:
        """Stop this controller, and no other; return whether the next leader may write at once."""
        quiet = stop_all([self])
        close_watches([self])
        return quiet


def stop_all(controllers: Iterable[Controller], seconds: float = JOIN_SECONDS) -> bool:
    """Stop all controllers and wait for their last requests, at most `seconds`.

    Return whether the next leader may write.
    """
    deadline = time.monotonic() + seconds
    for controller in controllers:
        controller.stop()
    for controller in controllers:
        controller.join(deadline)
    return all(controller.is_quiet for controller in controllers)


def close_watches(controllers: Sequence[Controller], seconds: float = WATCHES_SECONDS) -> None:
    """End the watches of all controllers in parallel; wait at most `seconds` in total."""
    threads = [Thread(target=each.close_watches, args=(seconds,), daemon=True) for each in controllers]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
