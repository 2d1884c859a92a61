"""Try again while another run of `gkm exec` holds a lock, which takes seconds; never for ever."""

import time
from collections.abc import Callable
from typing import TypeVar

from gkm.hoststate.locks import LockBusy
from gkm.mounts.relocation.tree_store import RelocationInProgress

from gkm_cli.output import CommandFailed

T = TypeVar("T")

SECONDS = 60.0
"""Another run holds its locks while it renames directories, removes what a killed run left, or rewrites paths."""
_POLL_SECONDS = 0.1


def retried_while_busy(attempt: Callable[[], T], seconds: float = SECONDS) -> T:
    """Return what `attempt` returns; repeat it while another run is in the way.

    Raises:
        CommandFailed: it is in the way for too long.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except (LockBusy, RelocationInProgress) as busy:
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"another gkm exec works on the same cache for more than {seconds:g} seconds; "
                    "wait for it, or use another directory with --store"
                ) from busy
        time.sleep(_POLL_SECONDS)
