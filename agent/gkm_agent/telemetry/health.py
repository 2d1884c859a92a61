"""Whether this process is worth keeping (/healthz), and whether it has taken up its work (/readyz).

A hanging driver or an API server that is away is no illness: a restart would mend neither, and lose what is known.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from gkm.probes.messages import Page, error_page
from gkm.probes.server import Pages

STUCK_SECONDS = 600.0
"""A turn takes milliseconds, and one that deletes a large entry from a slow disk minutes."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is known of the process: `idle` is how long ago the loop last came round, in seconds.

    `well` is None before the first turn, and says whether the last one went through. `listed`: the source has been
    seen whole once; one cache that nobody can read must not make a node unready. `gpus`: they were read, or are known
    to be unreadable.
    """

    idle: float
    well: bool | None
    listed: bool
    gpus: bool


def liveness_problems(vitals: Vitals) -> list[str]:
    """Return why the process should be restarted; pure."""
    return [f"the loop has not turned for {vitals.idle:.0f} s"] if vitals.idle > STUCK_SECONDS else []


def readiness_problems(vitals: Vitals) -> list[str]:
    """Return why the process is not ready; pure."""
    found = liveness_problems(vitals)
    if not vitals.listed:
        found.append("not all caches have been seen yet")
    if not vitals.gpus:
        found.append("the GPUs have not been read yet")
    if not vitals.well:
        found.append("no turn has been made yet" if vitals.well is None else "the last turn failed; the log says why")
    return found


class Heartbeat:
    """The beat of the loop. Written by its thread, read by the server's: single values only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._well: bool | None = None

    def beat(self, *, well: bool) -> None:
        """Note that a turn has ended."""
        self._well = well
        self._last = self._clock()

    def vitals(self, *, listed: bool, gpus: bool) -> Vitals:
        """Return how the process stands."""
        return Vitals(max(0.0, self._clock() - self._last), self._well, listed, gpus)


def pages(vitals: Callable[[], Vitals], metrics: Callable[[], Page]) -> Pages:
    """Return what is served. That the agent's lock is held needs no look: without it nothing is served."""
    return {
        "/healthz": lambda: _page(liveness_problems(vitals())),
        "/readyz": lambda: _page(readiness_problems(vitals())),
        "/metrics": metrics,
    }


def _page(against: list[str]) -> Page:
    return error_page(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(against)) if against else Page(b"ok\n")
