"""When volumes are scanned for compiled kernels: after kubelet measured a volume that has changed, and at its end.

Kubelet calls NodeGetVolumeStats once a minute. A volume whose bytes and inodes are those of the last scan costs
nothing, and so does one in which nothing was ever written. One thread scans, one volume at a time; the end of a volume
waits for its own scan only.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

from gkm.hoststate.kernel_misses import KernelMissCounts
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

from gkm_csi.kernels.scan import scan

SCAN_SECONDS: Final = 5.0
END_SECONDS: Final = 1.0
"""A pod ends; kubelet has other calls to make."""

_LOG = logging.getLogger(__name__)
_Size = tuple[int, int]
OpenLayers = Callable[[VolumeRecord], AbstractContextManager[tuple[int, Sequence[int]]]]
"""Holds the mount of a volume and its lower layers."""


def used_bytes(usage: os.statvfs_result) -> int:
    """Return the bytes in a private layer. Directories have none, so zero means that nothing was written."""
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


class KernelWatch:
    """The latest scan of each mounted volume with a cache and a private layer."""

    def __init__(self, open_layers: OpenLayers, measured: Callable[[str, KernelMissCounts | None], object]) -> None:
        self._open_layers = open_layers
        self._measured = measured
        self._lock = threading.Lock()
        self._scanned: dict[str, tuple[_Size, KernelMissCounts]] = {}
        self._pending: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kernels")

    def stop(self) -> None:
        """Return when no scan runs any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def usage_measured(self, record: VolumeRecord, usage: os.statvfs_result) -> None:
        """Scan a volume soon if it has changed since its last scan."""
        if not record.is_private or not record.digest or not used_bytes(usage):
            return
        volume, size = record.volume_id, _size(usage)
        with self._lock:
            known = self._scanned.get(volume)
            if volume in self._pending or (known is not None and known[0] == size):
                return
            self._pending.add(volume)
        self._pool.submit(self._scan_soon, record, size)

    def ended(self, record: VolumeRecord, usage: os.statvfs_result) -> KernelMissCounts:
        """Return the kernels that a volume has at its end, before it is unmounted, and forget the volume."""
        misses = KernelMissCounts()
        if used_bytes(usage):
            with self._lock:
                known = self._scanned.get(record.volume_id)
            is_current = known is not None and known[0] == _size(usage)
            misses = known[1] if known and is_current else self._scan(record, END_SECONDS) or misses
        self.forget(record.volume_id)
        return misses

    def forget(self, volume: str) -> None:
        """Forget a volume that is gone."""
        with self._lock:
            self._pending.discard(volume)
            known = self._scanned.pop(volume, None)
        if known is not None:
            self._measured(volume, None)

    def _scan_soon(self, record: VolumeRecord, size: _Size) -> None:
        misses = self._scan(record, SCAN_SECONDS)
        with self._lock:
            # A volume that ended meanwhile is not pending any more.
            if record.volume_id not in self._pending:
                return
            self._pending.discard(record.volume_id)
            if misses is None:
                return
            self._scanned[record.volume_id] = size, misses
        self._measured(record.volume_id, misses)

    def _scan(self, record: VolumeRecord, seconds: float) -> KernelMissCounts | None:
        try:
            with self._open_layers(record) as (mount, lowers):
                return scan(mount, lowers, seconds)
        except Exception:  # noqa: BLE001 -- a count must not hold up a pod
            _LOG.warning("compiled kernels not counted", extra=fields(volume=record.volume_id), exc_info=True)
            return None


def _size(usage: os.statvfs_result) -> _Size:
    return usage.f_bfree, usage.f_ffree
