"""A thread that publishes the latest value to a sink, and retries while the sink is unavailable.

A publisher is a thread that holds at most one value: `set` replaces a value that is not written yet. The thread writes
on change, retries with backoff while the sink refuses, and paces its rounds while changes keep coming. Every ten
minutes or so it invalidates the sink and writes everything again, because another client may have deleted or changed an
object. The refresh never lists: a list costs the API server one read per node, and every node runs an agent.

The statuses of all scopes are one value: its sink writes the scopes that changed and removes the objects of the others.
"""

import logging
import random
import time
from collections.abc import Mapping
from threading import Condition, Event, Thread
from typing import Generic, TypeVar

from gkm.api.nodes import NodeStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff

from gkm_agent.interfaces import NotWritten, Sink, StatusSink
from gkm_agent.telemetry import metrics

_LOG = logging.getLogger(__name__)
BACKOFF = Backoff(1.0, 60.0)
PACE = Backoff(1.0, 3.0)
"""Pauses between two rounds. The publisher writes the first change at once and collects the following ones. The pauses
grow while changes keep coming: without them 200 caches that arrived one by one took 150 to 210 writes."""
REFRESH_SECONDS = 600.0
"""The longest time until the publisher writes everything again."""
T = TypeVar("T")
_SHOWN_FAILURES = 3


class Publisher(Generic[T]):
    """Writes the latest value to a sink, in its own thread, and retries on failure."""

    def __init__(self, sink: Sink[T], name: str, backoff: Backoff = BACKOFF, pace: Backoff = PACE) -> None:
        self._sink = sink
        self._name = name
        self._backoff = backoff
        self._pace = pace
        self._retry_after = 0.0
        self._refused = False
        self._value: T | None = None
        self._version = 0
        self._written: int | None = 0
        """The version that the sink holds, None after a failure."""
        self._invalidate = False
        self._flushing = False
        self._stop = Event()
        self._condition = Condition()
        self._thread = Thread(target=self._run, name=f"{name}-publisher", daemon=True)

    def start(self) -> None:
        """Start the thread that writes the latest value; return at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop after the write in progress; wait at most `timeout` seconds for it."""
        self._stop.set()
        with self._condition:
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def set(self, value: T, *, force: bool = False) -> None:
        """Set the value to publish. With `force`, the sink gets it even if it did not change."""
        with self._condition:
            if value == self._value and not force:
                return
            self._value = value
            self._version += 1
            self._condition.notify_all()

    def rewrite_all(self) -> None:
        """Write everything again soon, because the Node was registered anew and its earlier objects are deleted."""
        with self._condition:
            self._invalidate = True
            self._version += 1
            self._condition.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the last value is published; return whether it is."""
        with self._condition:
            self._flushing = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: not self._is_behind(), timeout)

    def write(self) -> bool:
        """Write once; return whether the value that was set before the call is published."""
        with self._condition:
            value, version = self._value, self._version
            if value is None:
                return True
            invalidate, self._invalidate = self._invalidate, False
        self._retry_after, self._refused = 0.0, False
        written: int | None = None
        try:
            if invalidate:
                self._sink.invalidate()
            self._sink.publish(value)
            written = version
            metrics.succeeded(self._name)
        except NotWritten as error:
            self._retry_after, self._refused = error.retry_after, error.refused
            _LOG.warning(
                "report of this node not written to the API or to a file, tried again",
                extra=fields(publisher=self._name, why=str(error)),
            )
        except Exception:  # noqa: BLE001 -- a defect in a sink must not end the thread
            _LOG.exception(
                "report of this node not written because of a defect, tried again", extra=fields(publisher=self._name)
            )
            self._sink.invalidate()
        with self._condition:
            self._written = written
            self._condition.notify_all()
        return written is not None

    def _run(self) -> None:
        failures = rounds = 0
        refresh = _next_refresh()
        while not self._stop.is_set():
            rounds = 1 if self._wait_for_work(refresh) else rounds + 1
            if self._stop.is_set():
                return
            if time.monotonic() >= refresh:
                self._invalidate = True
                refresh = _next_refresh()
            version = self._version
            if self.write():
                failures = 0
                with self._condition:
                    self._condition.wait_for(lambda: self._stop.is_set() or self._flushing, self._pace.pause(rounds))
            else:
                failures += 1
                pause = self._backoff.pause(failures, self._retry_after)
                # The server refuses a part of the value: a change of another part does not wait as long.
                least = min(pause, self._pace.pause(rounds)) if self._refused else pause
                if not self._stop.wait(least):
                    self._wait_for_change(version, pause - least)

    def _wait_for_change(self, version: int, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._stop.is_set() or self._version != version, seconds)

    def _wait_for_work(self, refresh: float) -> bool:
        """Wait until there is a value to write, or until the refresh; return whether the call had to wait."""
        with self._condition:
            if self._is_behind():
                return False
            remaining = max(0.0, refresh - time.monotonic())
            self._condition.wait_for(lambda: self._stop.is_set() or self._is_behind(), remaining)
            return True

    def _is_behind(self) -> bool:
        return self._value is not None and self._written != self._version


class StatusPublisher(Publisher[Mapping[str | None, NodeStatus]]):
    """Publishes the status of this node: {scope: status}, with exactly these scopes."""

    def __init__(self, sink: StatusSink, backoff: Backoff = BACKOFF, pace: Backoff = PACE) -> None:
        super().__init__(ScopedStatuses(sink), "status", backoff, pace)


def _next_refresh() -> float:
    """Return the time of the next refresh, spread so that agents that started together do not write together."""
    return time.monotonic() + REFRESH_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load only


class ScopedStatuses:
    """A Sink for the statuses of all scopes, {scope: status}.

    It lists the existing objects once, before the first write.
    """

    def __init__(self, sink: StatusSink) -> None:
        self._sink = sink
        self._written: dict[str | None, NodeStatus | None] | None = None

    def publish(self, statuses: Mapping[str | None, NodeStatus]) -> None:
        """Implement Sink.publish. A scope that fails does not stop the others, unless the server requests a pause."""
        if self._written is None:
            self._written = dict.fromkeys(self._sink.scopes())
        failures: list[tuple[str | None, NotWritten]] = []
        for scope in dict.fromkeys((*statuses, *self._written)):
            try:
                self._write(self._written, scope, statuses.get(scope))
            except NotWritten as error:
                failures.append((scope, error))
                if error.retry_after:
                    break
        if failures:
            raise _summary(failures)

    def _write(
        self, written: dict[str | None, NodeStatus | None], scope: str | None, status: NodeStatus | None
    ) -> None:
        if status is None:
            self._sink.remove(scope)
            del written[scope]
        elif written.get(scope) != status:
            self._sink.publish(scope, status)
            written[scope] = status

    def invalidate(self) -> None:
        """Implement Sink.invalidate."""
        if self._written is not None:
            self._written = dict.fromkeys(self._written)


def _summary(failures: list[tuple[str | None, NotWritten]]) -> NotWritten:
    """Return one error for all failures: an unavailable API server fails hundreds of scopes with the same message."""
    distinct = {str(error): scope for scope, error in reversed(failures)}
    shown = [f"{scope or 'cluster-wide'}: {message}" for message, scope in reversed(distinct.items())]
    more = [f"{len(shown) - _SHOWN_FAILURES} other causes"] if len(shown) > _SHOWN_FAILURES else []
    text = "; ".join(shown[:_SHOWN_FAILURES] + more)
    errors = [error for _, error in failures]
    refused = all(error.refused for error in errors)
    return NotWritten(f"{len(failures)} objects: {text}", max(error.retry_after for error in errors), refused=refused)
