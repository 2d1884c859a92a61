"""NodeUnpublishVolume in steps: unmount all mounts of the target, remove the target, then the record.

A volume that does not exist is unpublished with OK: kubelet takes any error as a failure and repeats the call forever.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.kernel_misses import RuntimeMisses
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

from gkm_csi.kernels import KernelWatch, used_bytes
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import mark_for
from gkm_csi.volumes.locks import VolumeLocks
from gkm_csi.volumes.mount_interface import MountInterface
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import VolumeTarget
from gkm_csi.volumes.settled import SettledLayers

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VolumeUnpublisher:
    """Unpublishes volumes on one node (NodeUnpublishVolume)."""

    node: str
    volume_records: VolumeRecords
    mounter: MountInterface
    volume_locks: VolumeLocks
    captures: Captures
    kernels: KernelWatch
    settled: SettledLayers
    layer_ended: Callable[[VolumeRecord, int, RuntimeMisses], None]
    """Called at unmount with the bytes in a private layer, and the kernels that the program compiled above a cache."""

    def unpublish(self, volume: VolumeTarget) -> None:
        """Unmount a volume and remove its target and record; idempotent.

        Raises:
            StatusError: another call for the volume is in progress, or the volume cannot be unmounted.
        """
        with self.volume_locks.lock(volume):
            try:
                record = self.volume_records.load(volume.volume_id)
            except UnreadableState:
                _LOG.exception(
                    "volume record unreadable, volume unpublished without a capture or a count of its files",
                    extra=fields(volume=volume.volume_id),
                )
                record = None
            if record is None:
                self._without_record(volume)
                self.kernels.forget(volume.volume_id)
                self.settled.forget(volume.volume_id)
                self.volume_records.remove(volume.volume_id)  # from memory too: /run may have been wiped
            elif record.target_path != str(volume.target):
                _LOG.warning(
                    "unpublish names another target than the published one, volume stays mounted",
                    extra=fields(volume=volume.volume_id, target=str(volume.target), published=record.target_path),
                )
            else:
                self._with_record(volume, record)

    def _with_record(self, volume: VolumeTarget, record: VolumeRecord) -> None:
        if record.options.capture and record.is_private and not self.captures.ensure_captured(record):
            raise StatusError(
                Code.ABORTED,
                f"volume {volume.volume_id}: the capture of its files on {self.node} is running; kubelet retries",
            )
        usage = self._layer_usage(volume, record)
        misses = self.kernels.ended(record, usage) if usage is not None and record.digest else {}
        self._unmount(volume)
        if usage is not None:
            self.layer_ended(record, used_bytes(usage), misses)
        self.settled.forget(volume.volume_id)
        self.volume_records.remove(volume.volume_id)
        try:
            self.volume_records.write_usage(record.ref)
        except OSError:
            # The next call for this cache, or the next start, rewrites it: no reason to hold up the end of a pod.
            _LOG.exception(
                "usage file of a cache not written, its list of pods is outdated until the next volume",
                extra=fields(cache=str(record.ref)),
            )
        _LOG.info(
            "volume unpublished", extra=fields(volume=volume.volume_id, cache=str(record.ref), digest=record.digest)
        )

    def _layer_usage(self, volume: VolumeTarget, record: VolumeRecord) -> os.statvfs_result | None:
        """Return the usage of the private layer; None if absent, or if it cannot be read."""
        if not record.is_private:
            return None
        try:
            if self.mounter.observe(volume.target).mounts[-1:] != (mark_for(record),):
                return None
            return self.mounter.filesystem_usage(volume.target)
        except Exception:  # noqa: BLE001 -- a count must not hold up the end of the pod
            _LOG.warning(
                "usage of a private layer not read, left out of the metrics",
                extra=fields(volume=volume.volume_id),
                exc_info=True,
            )
            return None

    def _without_record(self, volume: VolumeTarget) -> None:
        """Unmount a mount of this volume that has no record; any other mount there belongs to others."""
        try:
            state = self.mounter.observe(volume.target)
        except OSError:  # no such parent, or not a directory: this driver made no mount there
            return
        if state.mounts and all(mark is not None and mark.owner == volume.volume_id for mark in state.mounts):
            self._unmount(volume)
            _LOG.warning("volume without a record unmounted", extra=fields(volume=volume.volume_id))

    def _unmount(self, volume: VolumeTarget) -> None:
        try:
            self.mounter.unmount(volume.target)
            removed = self.mounter.remove(volume.target)
        except OSError as error:
            _LOG.exception(
                "unmount of a volume failed, not because a process uses it, kubelet tries again",
                extra=fields(volume=volume.volume_id, target=str(volume.target), why=str(error)),
            )
            raise StatusError(
                Code.INTERNAL, f"volume {volume.volume_id} cannot be unmounted on {self.node}; kubelet retries"
            ) from error
        if not removed:
            _LOG.warning("volume target directory not empty, not removed", extra=fields(volume=volume.volume_id))
