"""How many requests the controllers have sent, by the API server's audit log, and when they send no more."""

import time

from support.cluster.audit import Audit
from support.domains.gkm import CONTROLLERS


def count(audit: Audit) -> int:
    """Return the number of requests of the controllers so far, without watches and the leader's lease."""
    return sum(
        request.user == CONTROLLERS and request.verb != "watch" and request.resource != "leases"
        for request in audit.requests()
    )


def until_calm(audit: Audit, calm_seconds: float, longest_seconds: float) -> None:
    """Wait until the controllers have finished: they send nothing for `calm_seconds`.

    Raises:
        TimeoutError: they still send requests after `longest_seconds`.
    """
    seen, since = count(audit), time.monotonic()
    deadline = since + longest_seconds
    while time.monotonic() - since < calm_seconds:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the controllers still send requests after {longest_seconds:g} s")
        time.sleep(min(1.0, calm_seconds / 2))
        if (now := count(audit)) > seen:
            since = time.monotonic()
        seen = now
