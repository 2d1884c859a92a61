"""Warnings about clients, each kind at most once in a while: who floods us must not fill the disk with our log."""

import logging
import time

from gkm.hoststate.logs import fields

SECONDS = 10.0


class ThrottledLog:
    """Says an event at most once in `SECONDS`, and then how many were not said. For one thread.

    Events are constants of ours, so there are few.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def warning(self, event: str, **what: object) -> None:
        """Say that it happened, and with what."""
        now = time.monotonic()
        if now - self._said.get(event, -SECONDS) < SECONDS:
            self._unsaid[event] = self._unsaid.get(event, 0) + 1
            return
        self._said[event] = now
        self._log.warning(event, extra=fields(**what, unsaid=self._unsaid.pop(event, None)))
