"""The caches that pods wait for: the CSI process records them, and the agent pulls them first.

A cache that fits no GPU of the node is never pulled: the agent reports that a pod waits for it.
"""

import time

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef

EXPIRY_SECONDS = 300.0
"""Kubelet repeats a call after two minutes and two seconds at most (exponentialbackoff, maxDurationBeforeRetry); a pod
without a call for longer has ended, or has its volume."""


def mark_waiting(layout: Layout, ref: CacheRef) -> None:
    """Record that a pod waits for a cache, now.

    Raises:
        OSError: it cannot be recorded; the pod only loses its precedence.
    """
    path = layout.waiting_file(ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)


def is_pod_waiting(layout: Layout, ref: CacheRef) -> bool:
    """Return whether a pod has recently waited for a cache."""
    try:
        return time.time() - layout.waiting_file(ref).lstat().st_mtime < EXPIRY_SECONDS
    except OSError:
        return False


def clear_waiting(layout: Layout, ref: CacheRef) -> None:
    """Remove the record for a cache; idempotent.

    Raises:
        OSError: it cannot be removed.
    """
    path = layout.waiting_file(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent)
