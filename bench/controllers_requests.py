"""How many requests the controllers have sent, by the API server's audit log, and when they send no more."""

import time

from support.cluster.audit import Audit
from support.domains.gkm import CONTROLLERS

CALM_SECONDS = 5.0
"""The controllers have finished when they send nothing for so long."""


def count(audit: Audit) -> int:
    """Return the number of requests of the controllers so far, without watches and the leader's lease."""
    return sum(
        request.user == CONTROLLERS and request.verb != "watch" and request.resource != "leases"
        for request in audit.requests()
    )


def until_calm(audit: Audit, longest_seconds: float) -> None:
    """Wait until the controllers have finished.

    Raises:
        TimeoutError: they still send requests after `longest_seconds`.
    """
    seen, since = count(audit), time.monotonic()
    deadline = since + longest_seconds
    while time.monotonic() - since < CALM_SECONDS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the controllers still send requests after {longest_seconds:g} s")
        time.sleep(1.0)
        if (now := count(audit)) > seen:
            since = time.monotonic()
        seen = now
