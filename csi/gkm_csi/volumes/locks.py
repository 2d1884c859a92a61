"""Locks on volumes and targets: a second call for one is refused at once, never queued.

A call that waited would occupy one of four worker threads, and kubelet could no longer reach it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.request import VolumeTarget


class VolumeLocks:
    """Locks for volumes and target paths, in memory: kubelet repeats its calls after a restart."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._locked: set[str] = set()

    @contextmanager
    def lock(self, volume: VolumeTarget) -> Iterator[None]:
        """Lock a volume and its target for one call.

        Raises:
            StatusError: another call holds one of them (CSI, "Concurrency": ABORTED).
        """
        # A volume id holds no slash and a path begins with one, so both fit into one set.
        keys = {volume.volume_id, str(volume.target)}
        with self._changed:
            if keys & self._locked:
                raise StatusError(
                    Code.ABORTED, f"volume {volume.volume_id}: another call for it is in progress; kubelet retries"
                )
            self._locked |= keys
        try:
            yield
        finally:
            with self._changed:
                self._locked -= keys
                self._changed.notify_all()

    def wait_until_idle(self) -> None:
        """Return once no call holds a lock; a call runs to its end even if its caller no longer waits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._locked)
