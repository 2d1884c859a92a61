"""Which volumes and targets a call is working on: a second call for one is refused at once, never queued.

A worker thread that waited for another would be one of four that kubelet no longer reaches.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gkm_csi.refusals import Code, Refusal
from gkm_csi.request import Place


class Underway:
    """The volumes and targets in work; in memory, because kubelet asks again after a restart."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()

    @contextmanager
    def hold(self, place: Place) -> Iterator[None]:
        """Hold a volume and its target for one call.

        Raises:
            Refusal: another call holds one of them (CSI, "Concurrency": ABORTED).
        """
        # A volume id holds no slash and a path begins with one: they share a set.
        keys = {place.volume_id, str(place.target)}
        with self._changed:
            if keys & self._busy:
                raise Refusal(
                    Code.ABORTED, f"volume {place.volume_id}: another call for it is under way; kubelet retries"
                )
            self._busy |= keys
        try:
            yield
        finally:
            with self._changed:
                self._busy -= keys
                self._changed.notify_all()

    def wait(self) -> None:
        """Return when no call is under way any more: one whose caller has gone goes on to its end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
