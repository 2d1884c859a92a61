"""NodeGetVolumeStats: how full a volume is, and whether it is as its record says."""

import logging
from dataclasses import dataclass

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord

from gkm_csi.layers import mark_of
from gkm_csi.ledger import Ledger
from gkm_csi.mounting import Mounting
from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.refusals import Code, Refusal
from gkm_csi.request import Place

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stats:
    """Tells of the volumes of one node."""

    ledger: Ledger
    mounter: Mounting

    def of(self, place: Place) -> csi.NodeGetVolumeStatsResponse:
        """Return usage and condition of a volume; one that is not as it should be has a condition, and is no error.

        Raises:
            Refusal: no such volume is at that path.
        """
        record = self._record(place)
        against = self._against(place, record)
        usage: list[csi.VolumeUsage] = []
        if not against:
            try:
                usage = self._usage(place, record)
            except OSError:
                log.exception("cannot tell how full a volume is", extra=fields(volume=place.volume_id))
                against = "it cannot be told how full it is: if this stays, delete the pod"
        condition = csi.VolumeCondition(abnormal=bool(against), message=against or "mounted as published")
        return csi.NodeGetVolumeStatsResponse(usage=usage, volume_condition=condition)

    def _record(self, place: Place) -> VolumeRecord:
        try:
            record = self.ledger.load(place.volume_id)
        except UnreadableState as error:
            raise Refusal(Code.NOT_FOUND, f"the record of volume {place.volume_id} is damaged") from error
        if record is None or record.target_path != str(place.target):
            raise Refusal(Code.NOT_FOUND, f"volume {place.volume_id} is not published at that path")
        return record

    def _against(self, place: Place, record: VolumeRecord) -> str:
        """Return what is wrong with a volume, "" for nothing."""
        try:
            spot = self.mounter.look(place.target)
        except OSError:
            log.exception("cannot look at a target", extra=fields(volume=place.volume_id))
            return "its target cannot be looked at: delete the pod"
        if spot.mounts[-1:] != (mark_of(record),):
            return "the cache is not mounted any more: delete the pod"
        return ""

    def _usage(self, place: Place, record: VolumeRecord) -> list[csi.VolumeUsage]:
        """Return bytes, and for a private volume inodes; a read-only one is full, whatever the disk below says."""
        if not record.is_private:
            return [_bytes(record.volume_size, 0)]
        room = self.mounter.room(place.target)
        inodes = csi.VolumeUsage(
            unit=csi.VolumeUsage.INODES,
            total=room.inodes,
            used=room.inodes - room.inodes_free,
            available=room.inodes_free,
        )
        return [_bytes(room.bytes, room.bytes_free), inodes]


def _bytes(total: int, free: int) -> csi.VolumeUsage:
    return csi.VolumeUsage(unit=csi.VolumeUsage.BYTES, total=total, used=total - free, available=free)
