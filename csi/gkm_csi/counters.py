"""Counters of publishes, ended private layers and compiled kernels.

They are kept in memory and written to a file each second; the agent exposes them as metrics.
"""

import logging
import threading
from dataclasses import replace

from gkm.hoststate import counters, kernel_misses
from gkm.hoststate.counters import Histogram, NodeCounters
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import RuntimeMisses
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

WRITE_INTERVAL_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""Seconds after a failed write; a full disk lasts, and each attempt is logged."""
PUBLISH_METHOD = "NodePublishVolume"
_STOP_SECONDS = 2.0

_LOG = logging.getLogger(__name__)


class Counters:
    """The counters since the node started; a restarted process continues from the file.

    A killed process loses at most one second of its counters, which Prometheus may take for a counter reset.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        self._counted = _load_previous(layout)
        # The misses of volumes that are mounted now. A restarted process measures them again.
        self._misses: dict[str, RuntimeMisses] = {}
        self._misses_changed = False
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def start(self) -> None:
        """Start the thread that writes the file; return at once."""
        self._changed.set()  # write a valid file from the start
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and write the file a last time."""
        self._stop.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def observe(self, call: str, code: str, seconds: float) -> None:
        """Count a gRPC call that ended; only publish calls are counted."""
        if call != PUBLISH_METHOD or code not in counters.CODES:
            return
        with self._lock:
            publishes = self._counted.publishes
            histogram = publishes.get(code, Histogram()).with_observation(max(0.0, seconds))
            self._counted = replace(self._counted, publishes={**publishes, code: histogram})
        self._changed.set()

    def layer_ended(self, record: VolumeRecord, used_bytes: int, misses: RuntimeMisses) -> None:
        """Count a private layer at unmount, by the bytes and the compiled kernels in it."""
        with self._lock:
            counted = self._counted
            if record.digest:
                self._counted = counted.with_layer(used_bytes, misses)
            else:
                self._counted = replace(counted, without_cache=counted.without_cache + (used_bytes > 0))
        self._changed.set()

    def kernels_measured(self, volume: str, misses: RuntimeMisses | None) -> None:
        """Record the kernels that the pod of a mounted volume has compiled so far; None removes the volume."""
        with self._lock:
            if misses is None:
                self._misses.pop(volume, None)
            else:
                self._misses[volume] = misses
            self._misses_changed = True
        self._changed.set()

    def write(self) -> bool:
        """Write the counters file and return whether it is written; a failure is logged and has no effect on calls."""
        with self._lock:
            counted, misses = self._counted, dict(self._misses) if self._misses_changed else None
            self._misses_changed = False
        try:
            counters.save(self._layout, counted)
            if misses is not None:
                kernel_misses.save(self._layout, misses)
        except OSError as error:
            with self._lock:
                self._misses_changed |= misses is not None
            _LOG.warning(
                "counters of the CSI driver not written to their file, tried again",
                extra=fields(path=str(self._layout.counters), reason=str(error)),
            )
            return False
        return True

    def _run(self) -> None:
        # An idle driver does not wake up.
        while not self._stop.is_set():
            self._changed.wait()
            self._changed.clear()
            if self.write():
                self._stop.wait(WRITE_INTERVAL_SECONDS)
            else:
                self._changed.set()
                self._stop.wait(RETRY_SECONDS)
        if self._changed.is_set():
            self.write()


def _load_previous(layout: Layout) -> NodeCounters:
    layout.kernel_misses.unlink(missing_ok=True)
    for leftover in layout.counters.parent.glob(".*.tmp"):  # a writer that was killed
        leftover.unlink(missing_ok=True)
    try:
        return counters.load(layout)
    except (OSError, UnreadableState) as error:
        _LOG.warning("counters file of the CSI driver unreadable, counters reset", extra=fields(reason=str(error)))
        return NodeCounters()
