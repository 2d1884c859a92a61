"""Keeping what a pod added to its volume (the attribute `capture`), before the volume goes.

Copying takes seconds, and no call waits for it: it is done in one thread of its own, and unpublish is answered ABORTED
until it is. What was kept appears in `captured/<volume>` by one rename; killed before that, it begins anew.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from gkm.hoststate import files, trees
from gkm.hoststate.layout import CAPTURED_FILE, Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts import added
from gkm.mounts.added import BLOCK, Added

FREE_PART: Final = 5
"""One part in so many of the disk stays free, of bytes as of inodes: below 15 % kubelet evicts pods."""
_SHARED: Final = 2
"""A layer may give so many times what it holds: holes and hard links show a file system more than once."""
_TEMPORARY: Final = ".tmp-"
_CONTENT: Final = "content"

log = logging.getLogger(__name__)

Open = Callable[[VolumeRecord], AbstractContextManager[tuple[int, Sequence[int]]]]
"""Holds the mount of a volume and the layers below its own, as descriptors."""


class Captures:
    """What is being kept on one node, one volume after the other."""

    def __init__(self, layout: Layout, opened: Open) -> None:
        self._layout = layout
        self._opened = opened
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="capture")

    def sweep(self) -> None:
        """Remove what a killed process was about to keep."""
        if self._layout.captured.exists():
            for left in self._layout.captured.glob(f"{_TEMPORARY}*"):
                _remove(left)

    def stop(self) -> None:
        """Return when nothing is being kept any more: who comes after this process must have it to himself."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def done(self, record: VolumeRecord) -> bool:
        """Return whether what a pod added was kept, or cannot be; begin to keep it where nobody has.

        A capture that fails is logged and costs what the pod compiled, never the end of the pod.
        """
        with self._lock:
            task = self._under_way.get(record.volume_id)
            if task is None:
                if self._place(record).exists():
                    return True
                task = self._under_way[record.volume_id] = self._pool.submit(self._keep, record)
            if not task.done():
                return False
            del self._under_way[record.volume_id]
            return True

    def _keep(self, record: VolumeRecord) -> None:
        told = fields(volume=record.volume_id, cache=str(record.ref), pod=f"{record.pod_namespace}/{record.pod_name}")
        temporary = self._layout.captured / f"{_TEMPORARY}{record.volume_id}"
        try:
            _remove(temporary)
            temporary.mkdir(0o700, parents=True)
            with self._opened(record) as (mount, lowers):
                kept = added.copy(mount, lowers, temporary / _CONTENT, min(_held(mount), self._room()))
            if kept.files:
                (temporary / CAPTURED_FILE).write_bytes(files.encode(_description(record, kept)))
                temporary.rename(self._place(record))
            log.info("captured", extra=told | fields(files=kept.files, bytes=kept.bytes, left=kept.left))
        except Exception:
            log.exception("not captured", extra=told)
        finally:
            _remove(temporary)

    def _room(self) -> int:
        disk = os.statvfs(self._layout.captured)
        if disk.f_favail < disk.f_files // FREE_PART:
            return 0
        return max(0, disk.f_bavail - disk.f_blocks // FREE_PART) * disk.f_frsize

    def _place(self, record: VolumeRecord) -> Path:
        return self._layout.captured / record.volume_id


def _remove(path: Path) -> None:
    """Remove a directory as far as that can be done: what stays, the next start tries again."""
    with suppress(OSError):
        trees.remove(path)


def _held(mount: int) -> int:
    """Return how many bytes the layer of a volume can give: its pod paid for what it holds, and for nothing else."""
    layer = os.statvfs(mount)
    used = (layer.f_blocks - layer.f_bfree) * layer.f_frsize
    return _SHARED * used + (layer.f_files - layer.f_ffree) * BLOCK


def _description(record: VolumeRecord, kept: Added) -> dict[str, object]:
    return {
        "volumeId": record.volume_id,
        "podName": record.pod_name,
        "podNamespace": record.pod_namespace,
        "cacheNamespace": record.ref.namespace,
        "cacheName": record.ref.name,
        "digest": record.digest,
        "mountPath": record.options.mount_path,
        "files": kept.files,
        "bytes": kept.bytes,
        "startTime": record.start_time,
    }
