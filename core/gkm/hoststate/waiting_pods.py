"""The caches that pods wait for: the CSI process records them, and the agent pulls them first.

A cache that fits no GPU of the node is never pulled: the agent reports that a pod waits for it.
"""

import time

from gkm.hoststate import files
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef

EXPIRY_SECONDS = 300.0
"""Seconds after which a mark expires. Kubelet repeats a call after at most two minutes and two seconds, so a pod
without a newer call has ended or has its volume."""


def mark_waiting(layout: Layout, ref: CacheRef) -> None:
    """Record that a pod waits for a cache, now.

    Raises:
        OSError: the mark cannot be written; the cache then loses its precedence.
    """
    path = layout.waiting_file(ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)


def is_pod_waiting(layout: Layout, ref: CacheRef) -> bool:
    """Return whether a pod has recently waited for a cache."""
    try:
        # A time in the future means that the clock was set back.
        return 0 <= time.time() - layout.waiting_file(ref).lstat().st_mtime < EXPIRY_SECONDS
    except OSError:
        return False


def clear_waiting(layout: Layout, ref: CacheRef) -> None:
    """Remove the mark that a pod waits for a cache; idempotent.

    Raises:
        OSError: the mark cannot be removed.
    """
    path = layout.waiting_file(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent)
