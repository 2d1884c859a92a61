"""NodeUnpublishVolume in its steps: unmount until nothing is there, remove the target, then the record.

Always OK for what is not there: kubelet takes any error as a failure and asks for ever.
"""

import logging

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.unmount import StillMounted

from gkm_csi.captures import Captures
from gkm_csi.mount_interface import MountInterface
from gkm_csi.request import VolumeTarget
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volume_locks import VolumeLocks
from gkm_csi.volume_records import VolumeRecords

log = logging.getLogger(__name__)


class VolumeUnpublisher:
    """Unpublishes volumes on one node."""

    def __init__(
        self,
        node: str,
        *,
        volume_records: VolumeRecords,
        mounter: MountInterface,
        volume_locks: VolumeLocks,
        captures: Captures,
    ) -> None:
        self._node = node
        self._volume_records = volume_records
        self._mounter = mounter
        self._volume_locks = volume_locks
        self._captures = captures

    def unpublish(self, volume: VolumeTarget) -> None:
        """Take a volume away from its target, leaving nothing; idempotent.

        Raises:
            Refusal: another call for the volume is under way, or it could not be unmounted.
        """
        with self._volume_locks.lock(volume):
            try:
                record = self._volume_records.load(volume.volume_id)
            except UnreadableState:
                log.exception("record unreadable", extra=fields(volume=volume.volume_id))
                self._without_record(volume)
                self._volume_records.remove(volume.volume_id)
                return
            if record is None:
                self._without_record(volume)
                self._volume_records.remove(volume.volume_id)  # what was wiped from /run is remembered here
            elif record.target_path != str(volume.target):
                log.warning(
                    "unpublish for a target that the volume is not published at",
                    extra=fields(volume=volume.volume_id, target=str(volume.target), published=record.target_path),
                )
            else:
                self._with_record(volume, record)

    def _with_record(self, volume: VolumeTarget, record: VolumeRecord) -> None:
        if record.options.capture and record.is_private and not self._captures.ensure_captured(record):
            raise StatusError(
                Code.ABORTED,
                f"volume {volume.volume_id}: what its pod added is being kept on {self._node}; kubelet retries",
            )
        self._unmount(volume)
        self._volume_records.remove(volume.volume_id)
        try:
            self._volume_records.write_usage(record.ref)
        except OSError:
            # Derived, and written anew by the next call for this cache or the next start: no reason to keep a pod.
            log.exception("usage file not written", extra=fields(cache=str(record.ref)))
        log.info("unpublished", extra=fields(volume=volume.volume_id, cache=str(record.ref), digest=record.digest))

    def _without_record(self, volume: VolumeTarget) -> None:
        """Take away a mount of this volume that lost its record; whatever else is there belongs to others."""
        try:
            state = self._mounter.observe(volume.target)
        except OSError:  # no such parent, or no directory: nothing that we could have made
            return
        if state.mounts and all(mark is not None and mark.owner == volume.volume_id for mark in state.mounts):
            self._unmount(volume)
            log.warning("unpublished without a record", extra=fields(volume=volume.volume_id))

    def _unmount(self, volume: VolumeTarget) -> None:
        try:
            self._mounter.unmount(volume.target)
            removed = self._mounter.remove(volume.target)
        except (OSError, StillMounted) as error:
            log.exception("cannot unmount", extra=fields(volume=volume.volume_id, target=str(volume.target)))
            raise StatusError(
                Code.INTERNAL, f"volume {volume.volume_id} cannot be unmounted on {self._node}; kubelet retries"
            ) from error
        if not removed:
            log.warning("the target directory is not empty and stays", extra=fields(volume=volume.volume_id))
