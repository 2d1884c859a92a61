"""Capture volumes while their pods run: on request, and once a private layer has not changed for some time.

Kubelet asks for the usage of each volume about once a minute (NodeGetVolumeStats). Bytes and inodes tell whether a
program wrote since: no file is read for it. A capture has all that the pod added so far, and the agent makes an image
of what the generation lacks.

A program of the pod, or `kubectl exec`, requests a capture by the file `.gkm-capture` in the volume: a user who cannot
write there cannot request one. Each time of its last change is one request. A process that starts knows no earlier
requests, and captures once more; the agent finds the same files.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from gkm.hoststate.records import VolumeRecord

from gkm_csi.kernels import LayerState, layer_state

REQUEST: Final = ".gkm-capture"
PAUSE_SECONDS: Final = 120.0
"""Seconds between two requested captures of a volume, because each copies the layer. An earlier request waits."""


@dataclass(frozen=True, slots=True)
class _Watched:
    state: LayerState
    since: float
    captured: LayerState | None = None


class _Request(NamedTuple):
    changed_ns: int
    taken: float


@dataclass(slots=True)
class SettledLayers:
    """Calls `capture` for each request and once for each state of a layer that lasts `seconds` (0: only on request).

    `changed_ns` returns when a file in a target was changed, 0 without one, and raises OSError. Thread-safe.
    """

    seconds: float
    capture: Callable[[VolumeRecord], object]
    changed_ns: Callable[[Path, str], int] = lambda _target, _name: 0
    clock: Callable[[], float] = time.monotonic
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _requests: dict[str, _Request] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def usage_measured(self, record: VolumeRecord, usage: os.statvfs_result) -> None:
        """Record the usage of a volume; return at once. Raises OSError if the target does not exist."""
        if not record.options.capture or not record.is_private:
            return
        settled = self.seconds > 0 and self._has_settled(record, usage)
        if self._is_requested(record) or settled:
            self.capture(record)

    def forget(self, volume: str) -> None:
        """Forget a volume that is gone."""
        with self._lock:
            self._watched.pop(volume, None)
            self._requests.pop(volume, None)

    def _is_requested(self, record: VolumeRecord) -> bool:
        changed, now = self.changed_ns(Path(record.target_path), REQUEST), self.clock()
        with self._lock:
            last = self._requests.get(record.volume_id)
            if not changed or (last and (last.changed_ns == changed or now - last.taken < PAUSE_SECONDS)):
                return False
            self._requests[record.volume_id] = _Request(changed, now)
            return True

    def _has_settled(self, record: VolumeRecord, usage: os.statvfs_result) -> bool:
        state, now = layer_state(usage), self.clock()
        with self._lock:
            known = self._watched.get(record.volume_id)
            if known is None or known.state != state:
                self._watched[record.volume_id] = _Watched(state, now, known.captured if known else None)
                return False
            if known.captured == state or now - known.since < self.seconds:
                return False
            self._watched[record.volume_id] = replace(known, captured=state)
            return True
