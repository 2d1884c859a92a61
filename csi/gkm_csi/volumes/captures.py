"""Copy the files that a pod added to its volume (attribute `capture`) before the volume is unmounted.

A copy takes seconds and no call waits for it: one thread copies, and unpublish returns ABORTED until the copy is
complete, or until the thread has copied one volume for COPY_SECONDS. While the pod runs, gkm_csi.volumes.settled asks
for captures of the same volume.

A finished capture appears as `captured/<volume>` by one rename; a process killed before it starts the copy anew.
So does a failed one, without files but with the cause: the agent reports it as it reports every refused capture.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from gkm.hoststate import files, trees
from gkm.hoststate.disk_space import FULL, spare_bytes
from gkm.hoststate.layout import CAPTURED_CONTENT, CAPTURED_FILE, Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts import copy_changes
from gkm.mounts.copy_changes import BLOCK_BYTES, CopyResult
from gkm.mounts.layer_walk import LayerTooLarge, TooManyBytes
from gkm.mounts.link_farm import MountedView

from gkm_csi.kernels import used_bytes
from gkm_csi.status_errors import StatusError
from gkm_csi.volumes.layers import NotMounted, VolumeLayers

_SHARED_FACTOR: Final = 2
"""A capture may take twice the size of the layer: holes and hard links count more than once in a copy."""
_TEMPORARY_PREFIX: Final = ".tmp-"
COPY_SECONDS: Final = 600.0
"""Seconds after which the ends of pods do not wait for a copy: a system call on a disk that hangs does not return."""
_MAX_ID: Final = 116
"""Characters of a volume's id in the name of a capture while its pod runs: with a time it is a valid id."""

_NO_FILES: Final = CopyResult(files=0, bytes=0, skipped=0)

_LOG = logging.getLogger(__name__)


class Captures:
    """Copies captures on one node, one volume after another; `min_free_percent` of the disk stays free."""

    def __init__(self, layout: Layout, layers: VolumeLayers, min_free_percent: float) -> None:
        self._layout = layout
        self._layers = layers
        self._min_free_percent = min_free_percent
        # No disk operation while it is held: every end of a pod needs it.
        self._lock = threading.Lock()
        self._began: float | None = None
        self._running: dict[str, Future[None]] = {}
        self._early: dict[str, Future[None]] = {}
        """By volume: the last copy while its pod runs."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="capture")

    def sweep(self) -> None:
        """Remove unfinished copies of an earlier process that was killed, as far as possible."""
        with suppress(OSError):
            for leftover in self._layout.captured.glob(f"{_TEMPORARY_PREFIX}*"):
                _remove(leftover)

    def stop(self) -> None:
        """Return once no copy runs: the next process must be the only writer of the directory."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def ensure_captured(self, record: VolumeRecord) -> bool:
        """Return whether the copy of a volume has ended, with or without success; start it if it has not run.

        A failed capture loses the files that the pod added, and leaves a record of the cause; it never holds up the end
        of the pod. Nor does a copy that hangs, its own or another one: only the log has that loss.
        """
        with self._lock:
            self._early.pop(record.volume_id, None)
            task = self._running.get(record.volume_id)
            if task is None:
                directory = self._layout.capture(record.volume_id)
                self._running[record.volume_id] = self._pool.submit(self._capture, record, directory)
                return False
            has_ended, began = task.done(), self._began
            if not has_ended and (began is None or time.monotonic() - began < COPY_SECONDS):
                return False
            del self._running[record.volume_id]
        if not has_ended:
            task.cancel()  # without an effect on one that has begun: it may still end
            _LOG.error("copy for a capture hangs, a pod ends without waiting for it", extra=_log_fields(record))
        return True

    def capture_running(self, record: VolumeRecord) -> None:
        """Start a copy of a volume while its pod runs, unless one waits already. Each such copy has a new name."""
        with self._lock:
            early = self._early.get(record.volume_id)
            if early is None or early.running() or early.done():
                name = f"{record.volume_id[:_MAX_ID]}.{int(time.time())}"
                self._early[record.volume_id] = self._pool.submit(self._capture, record, self._layout.capture(name))

    def _capture(self, record: VolumeRecord, directory: Path) -> None:
        self._began = time.monotonic()
        log_fields = _log_fields(record)
        temporary = self._layout.captured / f"{_TEMPORARY_PREFIX}{record.volume_id}"
        try:
            if directory.exists():  # by a process that was killed afterwards
                return
            _make_empty(temporary)
            with self._layers.mounted_layers(record) as (view, lowers):
                copied = self._copy(view, lowers, temporary / CAPTURED_CONTENT)
            if copied.files:
                _finish(temporary, directory, _description(record, directory.name, copied))
            _LOG.info(
                "changed files of a volume copied for its capture",
                extra=log_fields | fields(files=copied.files, bytes=copied.bytes, skipped=copied.skipped),
            )
        except NotMounted:
            _LOG.warning("volume is not mounted, it has no files to capture", extra=log_fields)
        except Exception as error:  # noqa: BLE001 -- a failed capture must not hold up the pod
            _LOG.exception("changed files of a volume not copied, this capture of the volume is lost", extra=log_fields)
            with suppress(OSError):  # the log has it
                _make_empty(temporary)
                _finish(temporary, directory, _description(record, directory.name) | {"lost": _loss(error)})
        finally:
            _remove(temporary)
            self._began = None

    def _copy(self, view: MountedView, lowers: Sequence[int], destination: Path) -> CopyResult:
        most = _max_layer_bytes(view.top)
        spare = spare_bytes(self._layout.captured, self._min_free_percent)
        try:
            return copy_changes.copy_changes(view, lowers, destination, min(most, spare))
        except TooManyBytes as error:
            if spare < most:
                why = f"capture.minFreePercent leaves {spare} bytes of the node's disk for it; free space on the node"
                raise OSError(errno.ENOSPC, why) from error
            raise


def _log_fields(record: VolumeRecord) -> dict[str, object]:
    return fields(volume=record.volume_id, cache=str(record.ref), pod=f"{record.pod_namespace}/{record.pod_name}")


def _remove(path: Path) -> None:
    """Remove a directory as far as possible; the next start removes the rest."""
    with suppress(OSError):
        trees.remove(path)


def _make_empty(directory: Path) -> None:
    _remove(directory)
    directory.mkdir(0o700, parents=True)


def _finish(temporary: Path, directory: Path, description: Mapping[str, object]) -> None:
    (temporary / CAPTURED_FILE).write_bytes(files.encode(description))
    # After a power cut, a capture that has its name would never be copied again: it must not have empty files.
    files.sync_file_system(temporary)
    temporary.rename(directory)


def _loss(error: Exception) -> Mapping[str, str]:
    """Return why files were not copied, as a reason of GKM's API and a sentence without paths of the node."""
    reason, why = "NodeError", type(error).__name__
    if isinstance(error, LayerTooLarge):
        reason, why = "TooLarge", str(error)
    elif isinstance(error, StatusError):
        why = error.message.partition(";")[0]  # what follows is for a call that kubelet repeats
    elif isinstance(error, OSError):
        reason = "DiskFull" if error.errno in FULL else reason
        why = error.strerror or why
    return {"reason": reason, "message": f"the files of the pod were not copied, so this capture is lost: {why}"}


def _max_layer_bytes(mount: int) -> int:
    """Return the bytes that a capture of a volume may take: the pod has paid for those in its layer, and no others."""
    layer = os.statvfs(mount)
    return _SHARED_FACTOR * used_bytes(layer) + (layer.f_files - layer.f_ffree) * BLOCK_BYTES


def _description(record: VolumeRecord, name: str, copied: CopyResult = _NO_FILES) -> dict[str, object]:
    return {
        "volumeId": name,
        "podName": record.pod_name,
        "podNamespace": record.pod_namespace,
        "cacheNamespace": record.ref.namespace,
        "cacheName": record.ref.name,
        "family": record.requested.name,
        "digest": record.digest,
        "mountPath": record.options.mount_path,  # agents of earlier versions need it
        "files": copied.files,
        "bytes": copied.bytes,
        "startTime": record.start_time,
    }
