"""Bringing status to its sink: only what changed, only the newest, and again while the sink is away."""

import logging
import random
import time
from collections.abc import Mapping
from threading import Condition, Event, Thread

from gkm.api.nodes import NodeStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError

from gkm_agent.interfaces.sink import NotWritten, StatusSink

_LOG = logging.getLogger(__name__)

BACKOFF = Backoff(1.0, 60.0)
PACE = Backoff(1.0, 3.0)
"""Between two rounds of writing: the first change is said at once, what follows it is said together. While changes keep
coming the pauses grow: 200 caches that arrive one by one took 150 to 210 writes before they did."""
REFRESH_SECONDS = 600.0
"""About so often everything is written again: somebody may have deleted or changed an object of ours. Nothing is listed
for that: a list costs the API server what there are nodes, and there are as many agents."""


class StatusPublisher:
    """Holds at most one status a scope; a newer one takes the place of one that is not written yet."""

    def __init__(self, sink: StatusSink, backoff: Backoff = BACKOFF, pace: Backoff = PACE) -> None:
        self._sink = sink
        self._backoff = backoff
        self._pace = pace
        self._asked = 0.0
        self._complaints: set[str] = set()
        self._wanted: Mapping[str | None, NodeStatus] | None = None
        self._written: dict[str | None, NodeStatus | None] | None = None
        self._settled = False
        self._again = False
        self._waited_for = False
        self._condition = Condition()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Begin to write; returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End, with what is being written now."""
        self._stop.set()
        with self._condition:
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def set(self, statuses: Mapping[str | None, NodeStatus]) -> None:
        """Say what the sink should hold: these scopes and no others."""
        with self._condition:
            if self._wanted == statuses:
                return
            self._wanted, self._settled = statuses, False
            self._condition.notify_all()

    def rewrite_all(self) -> None:
        """Have everything written once more, soon: what was written belonged to a Node that is no more."""
        with self._condition:
            self._again, self._settled = True, False
            self._condition.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until the sink holds what was set last; return whether it does."""
        with self._condition:
            self._waited_for = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: self._settled or self._wanted is None, timeout)

    def write(self) -> bool:
        """Bring the sink one round closer; return whether it now holds what was set when the round began."""
        self._asked = 0.0
        self._complaints.clear()
        with self._condition:
            wanted, again = self._wanted, self._again
            self._again = False
        if again:
            self._invalidate()
        if wanted is None:
            return True
        try:
            if self._written is None:
                self._written = dict.fromkeys(self._sink.scopes())
        except NotWritten as error:
            return self._failed("status not written", error)
        written = self._written
        gone = [scope for scope in written if scope not in wanted]
        # One that fails must not keep the others from being written.
        steps = [self._publish(written, scope, status) for scope, status in wanted.items()]
        steps += [self._remove(written, scope) for scope in gone]
        done = all(steps)
        with self._condition:
            self._settled = done and self._wanted is wanted and not self._again
            self._condition.notify_all()
        return done

    def _publish(self, written: dict[str | None, NodeStatus | None], scope: str | None, status: NodeStatus) -> bool:
        if written.get(scope) == status:
            return True
        try:
            self._sink.publish(scope, status)
        except NotWritten as error:
            return self._failed("status not written", error, scope)
        written[scope] = status
        return True

    def _remove(self, written: dict[str | None, NodeStatus | None], scope: str | None) -> bool:
        try:
            self._sink.remove(scope)
        except NotWritten as error:
            return self._failed("status not removed", error, scope)
        del written[scope]
        return True

    def _failed(self, what: str, error: NotWritten, scope: str | None = None) -> bool:
        why = str(error)
        if why not in self._complaints:
            # An API server that is away says the same of every scope, and of 500 namespaces it would again and again.
            self._complaints.add(why)
            _LOG.warning(what, extra=fields(scope=scope, why=why))
        if isinstance(error.__cause__, ApiError):
            self._asked = max(self._asked, error.__cause__.retry_after)
        return False

    def _invalidate(self) -> None:
        """Take what was written for unknown: it is written again, and what is there is not asked for."""
        if self._written is not None:
            self._written = dict.fromkeys(self._written)

    def _run(self) -> None:
        failures = rounds = 0
        refresh = _refresh()
        while not self._stop.is_set():
            rounds = 1 if self._wait_for_work(refresh) else rounds + 1
            if time.monotonic() >= refresh:
                self._invalidate()
                refresh = _refresh()
            try:
                done = self.write()
            except Exception:  # noqa: BLE001 -- a defect in a sink must not end the reporting
                _LOG.exception("the status sink failed")
                self._invalidate()
                done = False
            if done:
                failures = 0
                with self._condition:
                    self._condition.wait_for(lambda: self._stop.is_set() or self._waited_for, self._pace.pause(rounds))
            else:
                failures += 1
                self._stop.wait(self._backoff.pause(failures, self._asked))

    def _wait_for_work(self, refresh: float) -> bool:
        """Wait until there is something to write, or it is time for all of it; return whether that took any time."""
        with self._condition:
            if self._is_behind():
                return False
            left = max(0.0, refresh - time.monotonic())
            self._condition.wait_for(lambda: self._stop.is_set() or self._is_behind(), left)
            return True

    def _is_behind(self) -> bool:
        return self._wanted is not None and not self._settled


def _refresh() -> float:
    """Return when everything is written again: not when all the other agents do, which started with this one."""
    return time.monotonic() + REFRESH_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load, hides nothing
