"""Which caches pods are waiting for: the CSI process notes what it could not mount yet, the agent pulls that first."""

import time

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef

EXPIRY_SECONDS = 300.0
"""kubelet asks again after at most two minutes and two seconds (exponentialbackoff, maxDurationBeforeRetry); a pod that
has not been asking for longer than this has gone, or has what it wanted."""


def mark_waiting(layout: Layout, ref: CacheRef) -> None:
    """Note that a pod waits for a cache, now.

    Raises:
        OSError: it cannot be noted, which costs the pod its turn and nothing else.
    """
    path = layout.waiting_file(ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)


def is_pod_waiting(layout: Layout, ref: CacheRef) -> bool:
    """Return whether a pod has been waiting for a cache lately."""
    try:
        return time.time() - layout.waiting_file(ref).lstat().st_mtime < EXPIRY_SECONDS
    except OSError:
        return False


def clear_waiting(layout: Layout, ref: CacheRef) -> None:
    """Remove the note about a cache; idempotent.

    Raises:
        OSError: it cannot be removed.
    """
    path = layout.waiting_file(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent)
