"""Errors of the driver that no other test causes, through the real socket."""

import pytest
from gkm_csi.proto import csi_pb2
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts


def test_stats_of_a_volume_whose_record_is_damaged_are_not_found(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    rig.files.layout.volume_record(volume).write_text("{half")

    request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))
    code, text = rig.client.refused("NodeGetVolumeStats", request)

    assert (code, text) == ("NOT_FOUND", f"the record of volume {volume} is damaged")
    rig.client.unpublish(volume, target)
    assert rig.mounts(target) == []
