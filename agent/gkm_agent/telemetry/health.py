"""The health of this process: /healthz says whether a restart would help, /readyz whether the agent does its work.

A hanging driver or an unavailable API server is no reason for a restart: a restart would not mend them, and the agent
would lose its state in memory.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from gkm.probes.messages import Page, error_page
from gkm.probes.server import Pages

from gkm_agent.telemetry import metrics as series

STUCK_SECONDS = 600.0
"""A pass longer than this makes the agent unhealthy. Passes take milliseconds, or minutes on a slow disk."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of the process that the health pages show.

    `idle` is the time since the end of the last reconcile pass, in seconds. `succeeded` is the result of that pass,
    None before the first. `listed`: the source has listed all caches once; one unreadable cache must not make a node
    unready. `gpus`: the GPUs have been read once, or are known to be unreadable.
    """

    idle: float
    succeeded: bool | None
    listed: bool
    gpus: bool


def liveness_problems(vitals: Vitals) -> list[str]:
    """Return the reasons for a restart of the process; empty while it is healthy. Pure."""
    return [f"no reconcile pass has ended for {vitals.idle:.0f} s"] if vitals.idle > STUCK_SECONDS else []


def readiness_problems(vitals: Vitals) -> list[str]:
    """Return the reasons why the process is not ready; empty while it is ready. Pure."""
    found = liveness_problems(vitals)
    if not vitals.listed:
        found.append("the source has not listed all caches yet")
    if not vitals.gpus:
        found.append("the GPUs have not been read yet")
    if vitals.succeeded is None:
        found.append("no reconcile pass has ended yet")
    elif not vitals.succeeded:
        found.append("the last reconcile pass failed; the log has the cause")
    return found


class Heartbeat:
    """When the last reconcile pass ended, and its result. The loop writes it, the health server reads it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._succeeded: bool | None = None

    def beat(self, *, succeeded: bool) -> None:
        """Record the end of a reconcile pass."""
        self._succeeded = succeeded
        self._last = self._clock()
        if succeeded:
            series.succeeded("pass")

    def vitals(self, *, listed: bool, gpus: bool) -> Vitals:
        """Return the state of the process for the health pages."""
        return Vitals(max(0.0, self._clock() - self._last), self._succeeded, listed, gpus)


def pages(vitals: Callable[[], Vitals], metrics: Callable[[], Page]) -> Pages:
    """Return the pages of the health server: /healthz, /readyz and /metrics."""
    return {
        "/healthz": lambda: _page(liveness_problems(vitals())),
        "/readyz": lambda: _page(readiness_problems(vitals())),
        "/metrics": metrics,
    }


def _page(problems: list[str]) -> Page:
    return error_page(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(problems)) if problems else Page(b"ok\n")
