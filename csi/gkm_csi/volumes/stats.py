"""NodeGetVolumeStats: return the usage of a volume, and whether its mounts match its record."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.layers import mark_for
from gkm_csi.volumes.mount_interface import MountInterface
from gkm_csi.volumes.records import VolumeRecords
from gkm_csi.volumes.request import VolumeTarget

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """Reads the usage and the condition of volumes on one node (NodeGetVolumeStats)."""

    volume_records: VolumeRecords
    mounter: MountInterface
    measured: Sequence[Callable[[VolumeRecord, os.statvfs_result], object]] = ()
    """Functions that get the usage of each private volume; they must return at once."""

    def get(self, volume: VolumeTarget) -> csi.NodeGetVolumeStatsResponse:
        """Return the usage and the condition of a volume; a damaged volume is reported as abnormal, not as an error.

        Raises:
            StatusError: no such volume is published at that path.
        """
        record = self._record(volume)
        problem = self._problem(volume, record)
        usage: list[csi.VolumeUsage] = []
        if not problem:
            try:
                usage = self._usage(volume, record)
            except OSError:
                _LOG.exception(
                    "volume usage not read, volume reported as abnormal", extra=fields(volume=volume.volume_id)
                )
                problem = "its usage cannot be read: if this persists, delete the pod"
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
        """Return the problem of a volume, "" for a sound volume."""
        try:
            state = self.mounter.observe(volume.target)
        except OSError:
            _LOG.exception(
                "volume target not readable, volume reported as abnormal", extra=fields(volume=volume.volume_id)
            )
            return "its target cannot be read: delete the pod"
        if state.mounts[-1:] != (mark_for(record),):
            return "the cache is not mounted any more: delete the pod"
        return ""

    def _usage(self, volume: VolumeTarget, record: VolumeRecord) -> list[csi.VolumeUsage]:
        """Return bytes, and for a private volume inodes; a read-only volume is always full."""
        if not record.is_private:
            return [_usage_of(csi.VolumeUsage.BYTES, record.volume_size, 0)]
        usage = self.mounter.filesystem_usage(volume.target)
        for measured in self.measured:
            measured(record, usage)
        return [
            _usage_of(csi.VolumeUsage.BYTES, usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize),
            _usage_of(csi.VolumeUsage.INODES, usage.f_files, usage.f_favail),
        ]


def _usage_of(unit: csi.VolumeUsage.Unit, total: int, free: int) -> csi.VolumeUsage:
    return csi.VolumeUsage(unit=unit, total=total, used=total - free, available=free)
