"""Volumes of pods that live for months: a layer that has not changed for some time is captured while its pod runs.

Kubelet asks for the usage of each volume about once a minute (NodeGetVolumeStats). Bytes and inodes tell whether a
program wrote since: no file is read for it. A capture has all that the pod added so far, and the agent makes an image
of what the generation lacks.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

from gkm.hoststate.records import VolumeRecord


class LayerUse(NamedTuple):
    """Free blocks and inodes of a layer: each program that writes changes one of them."""

    blocks: int
    inodes: int


@dataclass(frozen=True, slots=True)
class _Watched:
    use: LayerUse
    since: float
    captured: LayerUse | None = None


@dataclass(slots=True)
class SettledLayers:
    """Calls `capture` once for each state in which a layer stays for `seconds`; 0 never calls it. Thread-safe."""

    seconds: float
    capture: Callable[[VolumeRecord], object]
    clock: Callable[[], float] = time.monotonic
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def usage_measured(self, record: VolumeRecord, usage: os.statvfs_result) -> None:
        """Take note of the usage of a volume; returns at once."""
        if self.seconds > 0 and record.options.capture and record.is_private and self._has_settled(record, usage):
            self.capture(record)

    def forget(self, volume: str) -> None:
        """Forget a volume that is gone."""
        with self._lock:
            self._watched.pop(volume, None)

    def _has_settled(self, record: VolumeRecord, usage: os.statvfs_result) -> bool:
        use, now = LayerUse(usage.f_bfree, usage.f_ffree), self.clock()
        with self._lock:
            known = self._watched.get(record.volume_id)
            if known is None or known.use != use:
                self._watched[record.volume_id] = _Watched(use, now, known.captured if known else None)
                return False
            if known.captured == use or now - known.since < self.seconds:
                return False
            self._watched[record.volume_id] = replace(known, captured=use)
            return True
