"""Bringing reports to their sink: only the newest, only on change, and again while the sink is away."""

import logging
import random
import time
from threading import Condition, Thread

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError

from gkm_agent.fabric.report import FabricReport
from gkm_agent.fabric.sink import FabricSink
from gkm_agent.interfaces.sink import NotWritten

_LOG = logging.getLogger(__name__)

BACKOFF = Backoff(1.0, 60.0)
REFRESH_SECONDS = 600.0
"""About so often everything is written again: somebody may have deleted or changed it."""


class FabricWriter:
    """A thread that holds at most one report: a newer one takes the place of one that is not written yet."""

    def __init__(self, sink: FabricSink, backoff: Backoff = BACKOFF) -> None:
        self._sink = sink
        self._backoff = backoff
        self._asked = 0.0
        self._report: FabricReport | None = None
        self._turn = 0
        self._done = 0
        self._ending = False
        self._condition = Condition()
        self._thread = Thread(target=self._run, name="fabric-writer", daemon=True)

    def start(self) -> None:
        """Begin to write; returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End, with what is being written now."""
        with self._condition:
            self._ending = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def set(self, report: FabricReport) -> None:
        """Say what should be outside. Saying the same again lets the sink look whether it still is so."""
        with self._condition:
            self._report = report
            self._turn += 1
            self._condition.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until what was set last is written; return whether it is."""
        with self._condition:
            return self._condition.wait_for(lambda: self._done == self._turn, timeout)

    def write(self) -> bool:
        """Try once; return whether the sink now says what was set when the try began."""
        self._asked = 0.0
        with self._condition:
            report, turn = self._report, self._turn
        if report is None:
            return True
        try:
            self._sink.publish(report)
        except NotWritten as error:
            _LOG.warning("the fabric is not reported", extra=fields(why=str(error)))
            if isinstance(error.__cause__, ApiError):
                self._asked = error.__cause__.retry_after
            return False
        with self._condition:
            self._done = turn
            self._condition.notify_all()
        return True

    def _run(self) -> None:
        failures, refresh = 0, _refresh()
        while not self._ending:
            if time.monotonic() >= refresh:
                self._sink.doubt()
                refresh = _refresh()
            try:
                done = self.write()
            except Exception:  # noqa: BLE001 -- a defect in a sink must not end the reporting
                _LOG.exception("the fabric sink failed")
                self._sink.doubt()
                done = False
            failures = 0 if done else failures + 1
            with self._condition:
                if done:
                    left = max(0.0, refresh - time.monotonic())
                    self._condition.wait_for(lambda: self._ending or self._done != self._turn, left)
                else:
                    pause = self._backoff.pause(failures, self._asked)
                    self._condition.wait_for(lambda: self._ending, pause)


def _refresh() -> float:
    """Return when everything is written again: not when all the other agents do, which started with this one."""
    return time.monotonic() + REFRESH_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load, hides nothing
