"""Which volumes and targets a call is working on: a second call for one is refused at once, never queued.

A worker thread that waited for another would be one of four that kubelet no longer reaches.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gkm_csi.request import VolumeTarget
from gkm_csi.status_errors import Code, StatusError


class VolumeLocks:
    """The volumes and targets in work; in memory, because kubelet asks again after a restart."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._locked: set[str] = set()

    @contextmanager
    def lock(self, volume: VolumeTarget) -> Iterator[None]:
        """Hold a volume and its target for one call.

        Raises:
            Refusal: another call holds one of them (CSI, "Concurrency": ABORTED).
        """
        # A volume id holds no slash and a path begins with one: they share a set.
        keys = {volume.volume_id, str(volume.target)}
        with self._changed:
            if keys & self._locked:
                raise StatusError(
                    Code.ABORTED, f"volume {volume.volume_id}: another call for it is under way; kubelet retries"
                )
            self._locked |= keys
        try:
            yield
        finally:
            with self._changed:
                self._locked -= keys
                self._changed.notify_all()

    def wait_until_idle(self) -> None:
        """Return when no call is under way any more: one whose caller has gone goes on to its end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._locked)
