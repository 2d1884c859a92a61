"""Errors of publish through the real socket: the code, a message for a person, and nothing left."""

import pytest
from gkm.hoststate import locks
from gkm.hoststate.names import CacheRef, quoted
from gkm.hoststate.pointers import CacheState
from gkm_csi.proto import csi_pb2
from support.csi.nodes import NAMESPACE
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts


def test_a_target_that_is_a_link_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    victim = rig.files.root / f"victim-{volume}"
    victim.mkdir()
    target.symlink_to(victim)

    code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert code == "INVALID_ARGUMENT"
    assert "link" in text
    assert rig.namespace.mounts(victim) == []
    assert not rig.files.layout.volume_record(volume).exists()


def test_a_link_on_the_way_to_the_target_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    real = target.parent.rename(target.parent.with_name("real"))
    target.parent.symlink_to(real)

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "(Too many levels of symbolic links)" in text) == ("INVALID_ARGUMENT", True), text
    assert not (real / "mount").exists()


def test_a_target_that_is_a_file_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    target.write_text("mine")

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "(Not a directory)" in text) == ("INVALID_ARGUMENT", True), text
    assert target.read_text() == "mine"


def test_a_target_without_a_parent_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    target = rig.files.kubelet / "pods" / "nobody" / "volumes" / "mount"

    code, text = rig.refused("csi-nobody", target, {"cacheName": ref.name})
    assert (code, "its parent must exist" in text) == ("INVALID_ARGUMENT", True), text
    assert not target.parent.exists()


def test_a_target_with_files_in_it_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    target.mkdir()
    (target / "mine").touch()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "is not empty" in text) == ("FAILED_PRECONDITION", True), text
    assert rig.mounts(target) == []
    assert (target / "mine").exists()


def test_a_target_on_which_something_else_is_mounted_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    target.mkdir()
    assert rig.namespace.run("mount", "-t", "tmpfs", "foreign", target).returncode == 0

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "a foreign mount is at the target" in text) == ("FAILED_PRECONDITION", True), text
    assert len(rig.mounts(target)) == 1
    assert not rig.files.layout.volume_record(volume).exists()


def test_the_target_of_another_volume_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    code, text = rig.refused("csi-intruder", target, {"cacheName": ref.name})
    assert (code, "a foreign mount is at the target" in text) == ("FAILED_PRECONDITION", True), text
    assert len(rig.mounts(target)) == 1
    assert not rig.files.layout.volume_record("csi-intruder").exists()


def test_an_entry_locked_by_garbage_collection_is_aborted(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    digest = rig.files.entry({"kernel/one.cubin": f"kernel of {ref.name}"})

    with locks.exclusive(rig.files.layout.entry_lock(digest)):
        code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert code == "ABORTED"
    assert "garbage collection" in text
    assert rig.nothing_left(volume, target)
    rig.client.publish(volume, target, {"cacheName": ref.name})


def test_a_missing_entry_is_unavailable(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "ghost")
    rig.files.pointer(ref, digest=f"sha256:{0:064}")
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "its files are missing from the store" in text) == ("UNAVAILABLE", True), text
    assert rig.nothing_left(volume, target)


def test_an_entry_that_is_a_link_is_never_followed(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "linked")
    digest = f"sha256:{1:064}"
    rig.files.layout.entry(digest).mkdir()
    (rig.files.layout.entry(digest) / "cache").symlink_to("/etc")
    rig.files.pointer(ref, digest=digest)
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert (code, "its log on the node has the cause" in text) == ("INTERNAL", True), text
    assert "Too many levels of symbolic links" in str(rig.driver.wait_for("gRPC call failed"))
    assert str(rig.files.root) not in text
    assert rig.nothing_left(volume, target)


def test_a_downloading_cache_reports_its_progress(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "coming")
    rig.files.pointer(ref, CacheState.DOWNLOADING, progress=61)
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert code == "UNAVAILABLE"
    assert text == "GKMCache ml-apps/coming is Downloading on node-7, 61 %; kubelet retries"
    assert rig.nothing_left(volume, target)


def test_an_incompatible_cache_reports_the_reason(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "wrong-gpu")
    rig.files.pointer(ref, CacheState.INCOMPATIBLE, reason="ArchitectureMismatch", message="gpu 0 is sm_80, not sm_90")
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert code == "FAILED_PRECONDITION"
    assert "gpu 0 is sm_80, not sm_90" in text
    assert rig.nothing_left(volume, target)


def test_a_damaged_pointer_is_unavailable_without_a_path(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "damaged")
    path = rig.files.layout.pointer(ref)
    path.parent.mkdir(parents=True)
    path.write_text("{half")
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name})

    assert (code, "its state file is damaged" in text) == ("UNAVAILABLE", True), text
    assert str(rig.files.root) not in text


def test_another_driver_than_the_verdict_was_reached_with_is_unavailable(rig: Rig) -> None:
    ref = CacheRef(NAMESPACE, "old-verdict")
    digest = rig.files.entry({"one": "x"})
    rig.files.pointer(ref, digest=digest, driver_version="550.54.14")
    volume, target = rig.volume()
    rig.files.driver_file.write_text("570.86.10\n")
    try:
        code, text = rig.refused(volume, target, {"cacheName": ref.name})
        rig.files.driver_file.write_text("550.54.14\n")
        rig.client.publish(volume, target, {"cacheName": ref.name})
    finally:
        rig.files.driver_file.unlink()

    assert code == "UNAVAILABLE"
    assert "550.54.14" in text
    assert "570.86.10" in text


def test_a_cache_of_another_namespace_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()

    code, text = rig.refused(
        volume, target, {"cacheName": ref.name, "cacheNamespace": NAMESPACE}, namespace="somebody-else"
    )

    assert code == "PERMISSION_DENIED"
    assert "somebody-else" in text
    assert rig.nothing_left(volume, target)


def test_a_pod_of_another_namespace_does_not_find_the_cache(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": ref.name}, namespace="somebody-else")
    assert (code, f"GKMCache somebody-else/{ref.name} is not known" in text) == ("UNAVAILABLE", True), text


def test_a_cluster_cache_is_for_every_namespace(rig: Rig) -> None:
    rig.files.pointer(CacheRef(None, "shared"), digest=rig.files.entry({"one": "for all"}))

    for attributes in ({"clusterCacheName": "shared"}, {"csi.gkm.io/GKMCache": "shared"}):
        volume, target = rig.volume()
        rig.client.publish(volume, target, attributes, namespace="somebody-else")
        assert rig.namespace.inside(target / "one").read_text() == "for all"


@pytest.mark.parametrize(
    "name", ["../llama", "a/b", "..", ".", "", "a\0b", "UPPER", "x" * 254, "a..b", "-a", "a\n", "é"]
)
def test_names_that_could_become_a_path_are_refused(rig: Rig, name: str) -> None:
    volume, target = rig.volume()

    code, text = rig.refused(volume, target, {"cacheName": name})
    assert (code, f"cacheName or its namespace: {quoted(name)} cannot be the name of a cache" in text) == (
        "INVALID_ARGUMENT",
        True,
    ), text
    assert rig.nothing_left(volume, target)


@pytest.mark.parametrize("volume", ["", "..", ".", "a/b", "../x", "a b", "x" * 129, "a\0", "_cluster"])
def test_volume_ids_that_could_become_a_path_are_refused(rig: Rig, volume: str) -> None:
    ref = rig.ready()
    _, target = rig.volume()
    why = f"volume_id: {quoted(volume)} cannot be the name of a volume" if volume else "volume_id is missing"

    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, why in text) == ("INVALID_ARGUMENT", True), text
    request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(target))
    code, text = rig.client.refused("NodeUnpublishVolume", request)
    assert (code, why in text) == ("INVALID_ARGUMENT", True), text
    assert not target.exists()
