"""Records and mounts at start: the repairs, and the cases without a repair."""

from pathlib import Path

import pytest
from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.mountinfo import Mark, MarkedMount
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import VolumeLayers
from gkm_csi.volumes.mounter import Mounter
from gkm_csi.volumes.reconcile import decide, reconcile
from gkm_csi.volumes.records import VolumeRecords
from support.csi.mounts import MountsInMemory
from support.csi.nodes import node_files
from support.host.descriptors_used_up import descriptors_used_up
from support.host.unlistable import unlistable

REF = CacheRef("ml-apps", "llama")
DIGEST = "sha256:" + "0" * 64
NOTHING: frozenset[str] = frozenset()


def record(volume: str = "csi-1", target: str = "/k/pods/u/mount") -> VolumeRecord:
    return VolumeRecord(volume, target, "trainer-0", "ml-apps", "uid", REF, DIGEST, 1, "now")


def mount(volume: str = "csi-1", point: str = "/k/pods/u/mount") -> MarkedMount:
    return MarkedMount(point, Mark(volume, DIGEST))


def test_a_record_with_its_mount_stays() -> None:
    mending = decide([record()], [mount()], NOTHING, NOTHING)
    assert (mending.records, mending.mounts) == ((), ())


def test_a_mount_is_found_by_its_mark_wherever_kubelets_directory_resolves_to() -> None:
    mending = decide([record()], [mount(point="/data/kubelet/pods/u/mount")], NOTHING, NOTHING)
    assert (mending.records, mending.mounts) == ((), ())


def test_a_record_without_mount_and_target_is_removed() -> None:
    assert decide([record()], [], NOTHING, NOTHING).records == (record(),)


def test_a_record_without_a_mount_stays_while_its_target_is_there() -> None:
    assert decide([record()], [], NOTHING, frozenset({"/k/pods/u/mount"})).records == ()


def test_a_mount_without_a_record_is_removed() -> None:
    assert decide([record("csi-2", "/other")], [mount()], NOTHING, NOTHING).mounts == (mount(),)


def test_a_mount_with_an_unreadable_record_stays() -> None:
    assert decide([], [mount()], frozenset({"csi-1"}), NOTHING).mounts == ()


def test_a_failed_repair_does_not_stop_the_start(caplog: pytest.LogCaptureFixture) -> None:
    with node_files() as files:
        layout = files.layout
        good = record("csi-good", str(files.target("csi-good")))
        files.target("csi-good").mkdir()
        records.save(layout, good)
        damaged = layout.volume_record("csi-damaged")
        damaged.parent.mkdir()
        damaged.write_text("[]")
        stray = layout.volumes / "csi-stray"
        stray.mkdir()
        (stray / "foreign").touch()
        (layout.volumes / "not a volume").mkdir()
        (layout.usage / "ml-apps" / "gone").mkdir(parents=True)
        (layout.usage / "ml-apps" / "gone" / ".usage.json.0000.tmp").touch()
        (layout.usage / "NOT A NAMESPACE" / "x").mkdir(parents=True)
        (layout.volumes / "csi-half").mkdir()
        (layout.volumes / "csi-half" / ".record.json.0000.tmp").touch()

        reconcile(layout, VolumeRecords(layout), Mounter(layout, files.kubelet))

        assert damaged.exists()
        assert (stray / "foreign").exists()
        assert not (layout.volumes / "csi-half").exists()
        assert layout.usage_file(REF).exists()
        assert not (layout.usage / "ml-apps" / "gone").exists()
        assert "volume record unreadable; delete the pod" in caplog.text
        assert "record without a mount" not in caplog.text  # there was none where there is no record


def test_a_mount_whose_record_cannot_be_read_now_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Above all, the start goes on: other volumes need the driver."""
    unmounted: list[Path] = []
    monkeypatch.setattr(Mounter, "own_mounts", lambda _: [mount(), mount("csi-2", "/other")])
    monkeypatch.setattr(Mounter, "unmount", lambda _, target: unmounted.append(target))
    with node_files() as files, descriptors_used_up(files.layout.volume_record("csi-1")):
        records.save(files.layout, record())
        reconcile(files.layout, VolumeRecords(files.layout), Mounter(files.layout, files.kubelet))
        assert files.layout.volume_record("csi-1").exists()
    assert unmounted == [Path("/other")], "a pod loses its cache"
    assert "volume record unreadable" in caplog.text


def test_a_target_that_cannot_be_looked_at_does_not_stop_the_start() -> None:
    with node_files() as files:
        loop = files.kubelet / "loop"
        loop.symlink_to(loop)
        records.save(files.layout, record("csi-1", str(loop / "mount")))

        reconcile(files.layout, VolumeRecords(files.layout), Mounter(files.layout, files.kubelet))

        assert records.load(files.layout, "csi-1"), "what cannot be looked at is not known to be gone"


def test_captures_that_cannot_be_listed_do_not_stop_the_start() -> None:
    with node_files() as files:
        files.layout.captured.mkdir()
        layers = VolumeLayers("node-7", files.layout, VolumeRecords(files.layout), MountsInMemory())
        with unlistable(files.layout.captured):
            Captures(files.layout, layers, 0.0).sweep()


def test_a_removed_record_is_logged_with_its_cache(caplog: pytest.LogCaptureFixture) -> None:
    with node_files() as files:
        records.save(files.layout, record("csi-1", "/k/pods/gone/mount"))

        reconcile(files.layout, VolumeRecords(files.layout), Mounter(files.layout, files.kubelet))

        assert not list(files.layout.volumes.iterdir())
    (line,) = [line for line in caplog.records if line.message == "volume record without a mount removed"]
    assert (vars(line)["volume"], vars(line)["cache"]) == ("csi-1", "GKMCache ml-apps/llama")


def test_usage_is_written_anew_from_the_records() -> None:
    with node_files() as files:
        target = files.target("csi-1")
        target.mkdir()
        records.save(files.layout, record("csi-1", str(target)))
        stale = files.layout.usage_file(CacheRef(None, "stale"))
        stale.parent.mkdir(parents=True)
        stale.write_text("{}")

        reconcile(files.layout, VolumeRecords(files.layout), Mounter(files.layout, files.kubelet))

        assert not stale.exists()
        assert files.layout.usage_file(REF).exists()
