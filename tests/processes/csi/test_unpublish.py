"""Unpublish, and the stats of published volumes."""

import pytest
from gkm.hoststate import records
from gkm_csi.proto import csi_pb2
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts


def test_unpublish_of_the_unknown_is_ok_and_touches_nothing(rig: Rig) -> None:
    _, target = rig.volume()
    target.mkdir()

    rig.client.unpublish("csi-never-seen", target)
    rig.client.unpublish("csi-never-seen", rig.files.kubelet / "pods" / "gone" / "volumes" / "mount")

    assert target.exists()


def test_unpublish_at_a_target_that_the_volume_is_not_at_leaves_it_where_it_is(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    _, elsewhere = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    rig.client.unpublish(volume, elsewhere)

    assert len(rig.mounts(target)) == 1
    assert records.load(rig.files.layout, volume) is not None


def test_unpublish_never_removes_foreign_mounts(rig: Rig) -> None:
    _, target = rig.volume()
    target.mkdir()
    assert rig.namespace.run("mount", "-t", "tmpfs", "foreign", target).returncode == 0

    rig.client.unpublish("csi-not-mine", target)

    assert len(rig.mounts(target)) == 1


def test_unpublish_removes_stacked_mounts(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    assert rig.namespace.run("mount", "--bind", target, target).returncode == 0

    rig.client.unpublish(volume, target)

    assert rig.nothing_left(volume, target)


def test_unpublish_preserves_foreign_files_below_the_mount(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    (target / "foreign").touch()  # out here nothing is mounted

    rig.client.unpublish(volume, target)

    assert (target / "foreign").exists()
    assert rig.mounts(target) == []


def test_stats_come_from_the_record(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    answer = rig.client.call(
        "NodeGetVolumeStats", csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))
    )

    (usage,) = answer.usage
    assert (usage.unit, usage.total, usage.used, usage.available) == (csi_pb2.VolumeUsage.BYTES, 80415, 80415, 0)


@pytest.mark.parametrize("path", ["elsewhere", "missing"])
def test_stats_of_a_missing_volume_are_not_found(rig: Rig, path: str) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    if path == "elsewhere":
        rig.client.publish(volume, target, {"cacheName": ref.name})
        target = target.with_name("elsewhere")

    request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))

    code, text = rig.client.refused("NodeGetVolumeStats", request)
    assert (code, "is not published at that path" in text) == ("NOT_FOUND", True), text
