"""Private layers, relocated files and empty volumes, through the real socket, with real mounts."""

import fcntl
import json

import pytest
from gkm.hoststate.pointers import CacheState
from gkm_csi.proto import csi_pb2
from support.csi.nodes import publish_message
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts

MIB = 1 << 20
GROUP = {"child_paths": {"k.json": "/built/here/key/k.json", "k.cubin": "/built/here/key/k.cubin"}}
KERNEL = {"key/__grp__k.json": json.dumps(GROUP), "key/k.json": "{}", "key/k.cubin": "binary"}


def test_a_pod_that_is_not_root_writes_into_a_layer_of_its_own(rig: Rig) -> None:
    ref = rig.ready({"kernel/deep/one.cubin": "shared"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false"})

    script = "echo new > top && echo new > kernel/deep/two && mkdir kernel/three && mv kernel/deep/one.cubin x"
    nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    # A container is given the volume itself; out here only root may pass kubelet's directories.
    entered = rig.namespace.run("sh", "-c", f'cd "$1" && exec {nobody} sh -c "$2"', "sh", target, script)

    assert entered.stderr == ""
    assert (rig.namespace.inside(target) / "kernel" / "deep" / "two").read_text() == "new\n"
    entry = rig.files.layout.entry(rig.record(volume).digest) / "cache"
    assert sorted(str(path.relative_to(entry)) for path in entry.rglob("*")) == [
        "kernel",
        "kernel/deep",
        "kernel/deep/one.cubin",
    ]


def test_two_volumes_of_one_cache_do_not_see_each_other(rig: Rig) -> None:
    ref = rig.ready()
    (first, one), (second, two) = rig.volume(), rig.volume()
    for volume, target in ((first, one), (second, two)):
        rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false"})
    (rig.namespace.inside(one) / "mine").write_text("mine")

    assert not (rig.namespace.inside(two) / "mine").exists()


def test_a_layer_holds_no_more_than_its_limit(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false", "sizeLimit": "2Mi"})
    inside = rig.namespace.inside(target)

    with pytest.raises(OSError, match="No space left"):
        (inside / "big").write_bytes(bytes(3 * MIB))
    (inside / "big").unlink()
    made = rig.namespace.run("sh", "-c", 'cd "$1" && seq 1 513 | xargs touch', "sh", target)
    assert "No space left on device" in made.stderr


def test_a_volume_is_one_overlay_and_unpublish_leaves_nothing(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    before = rig.namespace.mounts(rig.files.root)
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false"})
    (rig.namespace.inside(target) / "mine").write_text("mine")

    assert len(rig.namespace.mounts(rig.files.root)) == len(before) + 1
    options = rig.mounts(target)[0].split()[5].split(",")
    assert {"rw", "nosuid", "nodev"} <= set(options)
    assert "noexec" not in options
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    assert list(rig.files.layout.layers.iterdir()) == []
    assert rig.namespace.mounts(rig.files.root) == before


def test_a_repeated_publish_preserves_the_files_of_the_pod(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    asked = {"cacheName": ref.name, "readOnly": "false"}
    rig.client.publish(volume, target, asked)
    (rig.namespace.inside(target) / "mine").write_text("mine")

    rig.client.publish(volume, target, asked)

    assert (rig.namespace.inside(target) / "mine").read_text() == "mine"
    code, text = rig.refused(volume, target, {"cacheName": ref.name})
    assert (code, "with other attributes" in text) == ("ALREADY_EXISTS", True), text


@pytest.mark.parametrize("more", [{}, {"readOnly": "false"}])
def test_paths_are_those_of_the_container(rig: Rig, more: dict[str, str]) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "mountPath": "/root/.triton/cache", **more})

    group = json.loads((rig.namespace.inside(target) / "key" / "__grp__k.json").read_text())

    assert set(group["child_paths"].values()) == {"/root/.triton/cache/key/k.json", "/root/.triton/cache/key/k.cubin"}
    assert (rig.namespace.inside(target) / "key" / "k.cubin").read_text() == "binary"
    if not more:
        with pytest.raises(OSError, match="Read-only"):
            (rig.namespace.inside(target) / "key" / "new").touch()


def test_a_tree_is_made_once_for_all_volumes_at_a_path(rig: Rig) -> None:
    ref = rig.ready(KERNEL | {"other/file": "once"})
    asked = {"cacheName": ref.name, "mountPath": "/once"}
    (first, one), (second, two) = rig.volume(), rig.volume()
    rig.client.publish(first, one, asked)
    trees = rig.files.layout.relocated_in_memory(rig.record(first).digest)
    made = {path: path.stat().st_ino for path in trees.rglob("*")}

    rig.client.publish(second, two, asked)

    assert {path: path.stat().st_ino for path in trees.rglob("*")} == made


def test_unused_trees_are_evicted_for_new_ones(rig: Rig) -> None:
    ref = rig.ready({"a/file": "many paths"})
    kept, kept_target = rig.volume()
    rig.client.publish(kept, kept_target, {"cacheName": ref.name, "mountPath": "/kept"})
    for number in range(40):
        volume, target = rig.volume()
        rig.client.publish(volume, target, {"cacheName": ref.name, "mountPath": f"/path/{number}"})
        rig.client.unpublish(volume, target)

    trees = rig.files.layout.relocated_in_memory(rig.record(kept).digest)
    assert len([path for path in trees.iterdir() if not path.name.startswith(".")]) <= 16
    assert (rig.namespace.inside(kept_target) / "a" / "file").read_text() == "many paths"


@pytest.mark.parametrize("state", [None, CacheState.DOWNLOADING, CacheState.INCOMPATIBLE, CacheState.FAILED])
def test_if_unavailable_empty_gives_an_empty_volume_for_the_life_of_the_pod(rig: Rig, state: CacheState | None) -> None:
    ref = rig.ready()
    if state is None:
        (rig.files.layout.pointer(ref)).unlink()
    else:
        rig.files.pointer(ref, state, reason="DriverTooOld", message="driver 500, needs 550")
    volume, target = rig.volume()
    asked = {"cacheName": ref.name, "ifUnavailable": "empty"}
    rig.client.publish(volume, target, asked)
    inside = rig.namespace.inside(target)

    assert list(inside.iterdir()) == []
    (inside / "compiled").write_text("here")
    record = rig.record(volume)
    assert record.digest == ""
    assert str(ref) in record.empty_because
    rig.files.ready(ref.name)
    rig.client.publish(volume, target, asked)
    assert [path.name for path in inside.iterdir()] == ["compiled"]
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)


def test_if_unavailable_empty_gives_the_cache_when_it_is_ready(rig: Rig) -> None:
    ref = rig.ready({"one": "hello"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "ifUnavailable": "empty"})

    assert (rig.namespace.inside(target) / "one").read_text() == "hello"
    with pytest.raises(OSError, match="Read-only"):
        (rig.namespace.inside(target) / "two").touch()


def test_anothers_cache_is_no_reason_for_an_empty_volume(rig: Rig) -> None:
    volume, target = rig.volume()
    asked = {"cacheName": "llama", "cacheNamespace": "other", "ifUnavailable": "empty"}
    code, text = rig.refused(volume, target, asked)
    assert (code, "belongs to another namespace than the pod" in text) == ("PERMISSION_DENIED", True), text
    assert rig.nothing_left(volume, target)


def test_contradicting_read_only_values_are_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    message = publish_message(volume, target, {"cacheName": ref.name, "readOnly": "false"})
    message.readonly = True
    code, text = rig.client.refused("NodePublishVolume", message)
    assert code == "INVALID_ARGUMENT"
    assert "contradicts the volume attribute readOnly" in text


def test_how_full_a_private_volume_is(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false", "sizeLimit": "8Mi"})
    (rig.namespace.inside(target) / "mine").write_bytes(bytes(2 * MIB))

    asked = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))
    answer = rig.client.call("NodeGetVolumeStats", asked)

    size, inodes = answer.usage
    assert (size.total, size.used, size.available) == (8 * MIB, 2 * MIB, 6 * MIB)
    assert inodes.unit == csi_pb2.VolumeUsage.INODES
    assert 0 < inodes.used < inodes.total == 2048
    assert not answer.volume_condition.abnormal


def test_a_volume_without_its_mount_is_abnormal(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    assert rig.namespace.run("umount", target).returncode == 0

    asked = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))
    answer = rig.client.call("NodeGetVolumeStats", asked)

    assert answer.volume_condition.abnormal
    assert "not mounted any more: delete the pod" in answer.volume_condition.message
    assert list(answer.usage) == []


def test_a_tree_that_is_being_made_for_another_pod_is_aborted(rig: Rig) -> None:
    ref = rig.ready(KERNEL | {"other/file": "under way"})
    volume, target = rig.volume()
    place = rig.files.layout.relocated_in_memory(rig.files.entry(KERNEL | {"other/file": "under way"}))
    place.mkdir(parents=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, text = rig.refused(volume, target, {"cacheName": ref.name, "mountPath": "/cache"})
    assert code == "ABORTED"
    assert "its paths are being rewritten for another pod; kubelet retries" in text
    assert rig.nothing_left(volume, target)
    rig.client.publish(volume, target, {"cacheName": ref.name, "mountPath": "/cache"})


def test_an_entry_with_invalid_content_gets_no_layer(rig: Rig) -> None:
    content = {"a/file": "with a link"}
    ref = rig.ready(content)
    (rig.files.layout.entry(rig.files.entry(content)) / "cache" / "a" / "link").symlink_to("/etc")
    volume, target = rig.volume()
    code, text = rig.refused(volume, target, {"cacheName": ref.name, "readOnly": "false"})
    assert code == "FAILED_PRECONDITION"
    assert "cannot be mounted with mountPath or with a private layer" in text
    assert rig.nothing_left(volume, target)


def test_a_full_disk_is_unavailable_and_a_retry_succeeds(rig: Rig) -> None:
    content = {"a/file": "no room"}
    ref = rig.ready(content)
    place = rig.files.layout.relocated_in_memory(rig.files.entry(content))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("in the way")
    volume, target = rig.volume()
    code, text = rig.refused(volume, target, {"cacheName": ref.name, "readOnly": "false"})
    assert code == "UNAVAILABLE"
    assert "the files for its mount path cannot be written" in text
    assert rig.nothing_left(volume, target)
    place.unlink()
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": "false"})
