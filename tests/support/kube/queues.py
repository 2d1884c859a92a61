"""What tests ask of a work queue."""

from typing import Any

from gkm.kube.workqueue import WorkQueue


def is_idle(queue: WorkQueue[Any]) -> bool:
    """Return whether no key waits and no worker is busy."""
    with queue._changed:
        return not queue._due and not queue._running
