"""Warnings about clients, each event at most once in an interval, so that a flood of requests cannot fill the disk."""

import logging
import time
from collections import Counter

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Clock, MinimumInterval

SECONDS = 10.0


class ThrottledLog:
    """Logs an event at most once in `SECONDS`, with the number of suppressed repetitions. For one thread.

    Events are constants of this package, so there are few.
    """

    def __init__(self, log: logging.Logger, clock: Clock = time.monotonic) -> None:
        self._log = log
        self._interval: MinimumInterval[str] = MinimumInterval(SECONDS, clock)
        self._suppressed: Counter[str] = Counter()

    def warning(self, event: str, **details: object) -> None:
        """Log an event with its fields."""
        if not self._interval.has_passed(event):
            self._suppressed[event] += 1
            return
        self._interval.record(event)
        self._log.warning(event, extra=fields(**details, suppressed=self._suppressed.pop(event, None)))
