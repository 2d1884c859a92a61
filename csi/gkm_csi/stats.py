"""NodeGetVolumeStats: how full a volume is, and whether it is as its record says."""

import logging
from dataclasses import dataclass

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

from gkm_csi.mount_interface import MountInterface
from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.request import VolumeTarget
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volume_layers import mark_for
from gkm_csi.volume_records import VolumeRecords

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """Tells of the volumes of one node."""

    volume_records: VolumeRecords
    mounter: MountInterface

    def get(self, volume: VolumeTarget) -> csi.NodeGetVolumeStatsResponse:
        """Return usage and condition of a volume; one that is not as it should be has a condition, and is no error.

        Raises:
            Refusal: no such volume is at that path.
        """
        record = self._record(volume)
        problem = self._problem(volume, record)
        usage: list[csi.VolumeUsage] = []
        if not problem:
            try:
                usage = self._usage(volume, record)
            except OSError:
                log.exception("cannot tell how full a volume is", extra=fields(volume=volume.volume_id))
                problem = "it cannot be told how full it is: if this stays, delete the pod"
        condition = csi.VolumeCondition(abnormal=bool(problem), message=problem or "mounted as published")
        return csi.NodeGetVolumeStatsResponse(usage=usage, volume_condition=condition)

    def _record(self, volume: VolumeTarget) -> VolumeRecord:
        try:
            record = self.volume_records.load(volume.volume_id)
        except UnreadableState as error:
            raise StatusError(Code.NOT_FOUND, f"the record of volume {volume.volume_id} is damaged") from error
        if record is None or record.target_path != str(volume.target):
            raise StatusError(Code.NOT_FOUND, f"volume {volume.volume_id} is not published at that path")
        return record

    def _problem(self, volume: VolumeTarget, record: VolumeRecord) -> str:
        """Return what is wrong with a volume, "" for nothing."""
        try:
            state = self.mounter.observe(volume.target)
        except OSError:
            log.exception("cannot look at a target", extra=fields(volume=volume.volume_id))
            return "its target cannot be looked at: delete the pod"
        if state.mounts[-1:] != (mark_for(record),):
            return "the cache is not mounted any more: delete the pod"
        return ""

    def _usage(self, volume: VolumeTarget, record: VolumeRecord) -> list[csi.VolumeUsage]:
        """Return bytes, and for a private volume inodes; a read-only one is full, whatever the disk below says."""
        if not record.is_private:
            return [_bytes(record.volume_size, 0)]
        filesystem_usage = self.mounter.filesystem_usage(volume.target)
        inodes = csi.VolumeUsage(
            unit=csi.VolumeUsage.INODES,
            total=filesystem_usage.inodes,
            used=filesystem_usage.inodes - filesystem_usage.inodes_free,
            available=filesystem_usage.inodes_free,
        )
        return [_bytes(filesystem_usage.bytes, filesystem_usage.bytes_free), inodes]


def _bytes(total: int, free: int) -> csi.VolumeUsage:
    return csi.VolumeUsage(unit=csi.VolumeUsage.BYTES, total=total, used=total - free, available=free)
