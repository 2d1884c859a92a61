"""A volume with the attribute `capture`: its added files are copied before it is unmounted, and no other files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import families, locks, trees
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm_csi.proto.csi_pb2 import NodeGetVolumeStatsRequest
from support.csi.rig import Rig
from support.host.waiting import until

pytestmark = pytest.mark.mounts

GROUP = {"child_paths": {"k.json": "/built/here/key/k.json"}}
CONTENT = {"key/__grp__k.json": json.dumps(GROUP), "key/k.json": "{}", "deep/er/file": "kept below"}


def published(rig: Rig, ref: CacheRef, **more: str) -> tuple[str, Path]:
    volume, target = rig.volume()
    asked = {"cacheName": ref.name, "readOnly": "false", "capture": "true", "mountPath": "/cache", **more}
    rig.client.publish(volume, target, asked)
    return volume, target


def captured(rig: Rig, volume: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    place = rig.files.layout.captured / volume
    content = place / "content"
    found = {str(path.relative_to(content)): path.read_bytes() for path in content.rglob("*") if path.is_file()}
    return json.loads((place / "captured.json").read_text()), found


def test_a_capture_holds_the_added_files_and_none_of_the_cache(rig: Rig) -> None:
    ref = rig.ready(CONTENT)
    volume, target = published(rig, ref)
    inside = rig.namespace.inside(target)
    (inside / "new" / "deep").mkdir(parents=True)
    (inside / "new" / "deep" / "kernel").write_text("compiled")
    (inside / "deep" / "er" / "other").write_text("beside")
    (inside / "deep" / "er" / "file").unlink()
    (inside / "key" / "k.json").unlink()
    (inside / "key" / "k.json").write_text('{"changed": 1}')

    said = rig.client.unpublish_as_kubelet(volume, target)

    assert said
    assert all("the capture of its files on" in one for one in said)
    what, files = captured(rig, volume)
    assert files == {
        "new/deep/kernel": b"compiled",
        "deep/er/other": b"beside",
        "key/k.json": b'{"changed": 1}',
    }
    assert (what["cacheName"], what["podNamespace"], what["mountPath"]) == (ref.name, "ml-apps", "/cache")
    assert (what["files"], what["bytes"]) == (3, 28)
    assert rig.nothing_left(volume, target)


def test_links_and_the_like_are_never_followed(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    ref = rig.ready(CONTENT)
    volume, target = published(rig, ref)
    inside = rig.namespace.inside(target)
    (inside / "link").symlink_to("/etc/passwd")
    (inside / "directory").symlink_to(tmp_path)
    (inside / "deep" / "er" / "file").unlink()
    (inside / "deep" / "er" / "file").symlink_to(tmp_path / "secret")
    os.mkfifo(inside / "pipe")
    (inside / "real").write_text("x")

    rig.client.unpublish_as_kubelet(volume, target)

    assert captured(rig, volume)[1] == {"real": b"x"}


def test_a_pod_that_added_nothing_leaves_nothing(rig: Rig) -> None:
    volume, target = published(rig, rig.ready(CONTENT))
    rig.client.unpublish_as_kubelet(volume, target)
    assert not (rig.files.layout.captured / volume).exists()
    assert rig.nothing_left(volume, target)


def test_a_volume_without_the_attribute_is_not_captured(rig: Rig) -> None:
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": rig.ready().name, "readOnly": "false"})
    (rig.namespace.inside(target) / "mine").write_text("mine")
    assert rig.client.unpublish_as_kubelet(volume, target) == []
    assert not (rig.files.layout.captured / volume).exists()


def test_a_capture_beyond_the_bounds_fails_and_the_pod_ends(rig: Rig) -> None:
    volume, target = published(rig, rig.ready(CONTENT))
    deep = rig.namespace.inside(target)
    for _ in range(20):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_text("deep")

    rig.client.unpublish_as_kubelet(volume, target)

    assert "more than 14 directories deep" in str(
        rig.driver.wait_for("changed files of a volume not copied, this capture of the volume is lost")
    )
    what, files = captured(rig, volume)
    assert files == {}
    assert (what["lost"]["reason"], what["files"]) == ("TooLarge", 0)
    assert "more than 14 directories deep" in what["lost"]["message"]
    assert rig.nothing_left(volume, target)


def test_a_capture_does_not_wait_for_garbage_collection(rig: Rig) -> None:
    """The agent locks an entry while it looks for its records; the volume has one."""
    volume, target = published(rig, rig.ready(CONTENT))
    (rig.namespace.inside(target) / "new").write_text("compiled")
    with locks.exclusive(rig.files.layout.entry_lock(rig.record(volume).digest)):
        rig.client.unpublish_as_kubelet(volume, target)
    what, files = captured(rig, volume)
    assert files == {"new": b"compiled"}, f"the last capture of the pod is lost: {what.get('lost')}"


def test_a_lost_capture_promises_no_other_try(rig: Rig) -> None:
    volume, target = published(rig, rig.ready(CONTENT))
    (rig.namespace.inside(target) / "new").write_text("compiled")
    trees.remove(rig.files.layout.entry(rig.record(volume).digest))
    rig.client.unpublish_as_kubelet(volume, target)
    rig.driver.wait_for("changed files of a volume not copied, this capture of the volume is lost")
    message = captured(rig, volume)[0]["lost"]["message"]
    assert "this capture is lost: GKMCache ml-apps/" in message
    assert "its files are missing from the store" in message
    assert "retries" not in message, "kubelet does not repeat a call that succeeded"


def test_the_files_of_an_empty_volume_are_captured(rig: Rig) -> None:
    volume, target = rig.volume()
    asked = {"cacheName": "not-there-yet", "ifUnavailable": "empty", "capture": "true"}
    rig.client.publish(volume, target, asked)
    (rig.namespace.inside(target) / "compiled").write_text("all of it")

    rig.client.unpublish_as_kubelet(volume, target)

    what, files = captured(rig, volume)
    assert files == {"compiled": b"all of it"}
    assert what["digest"] == ""


def measure(rig: Rig, volume: str, target: Path) -> None:
    """Ask for the usage of a volume, as kubelet does once a minute."""
    rig.client.call("NodeGetVolumeStats", NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target)))


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_running_pod_requests_a_capture_by_a_file(rig: Rig, tmp_path: Path, kind: str) -> None:
    volume, target = published(rig, rig.ready(CONTENT))
    inside = rig.namespace.inside(target)
    (inside / "new").write_text("compiled")
    measure(rig, volume, target)
    match kind:
        case "file":
            (inside / ".gkm-capture").touch()
        case "link":
            (inside / ".gkm-capture").symlink_to(tmp_path / "nowhere")
        case _:
            (inside / ".gkm-capture").mkdir()
    for _ in range(2):
        measure(rig, volume, target)

    def found() -> list[str]:
        return [path.name for path in rig.files.layout.captured.glob(f"{volume}.*")]

    until(lambda: bool(found()), "the capture of the running pod")
    (name,) = found()  # and none before the request
    _what, files = captured(rig, name)
    assert files.pop(".gkm-capture", b"") == b""
    assert files == {"new": b"compiled"}
    rig.client.unpublish_as_kubelet(volume, target)
    assert rig.nothing_left(volume, target)


def test_the_capture_of_a_member_names_the_family_and_the_member(rig: Rig) -> None:
    member = rig.ready(CONTENT)
    family = CacheRef("ml-apps", "llama")
    families.save(rig.files.layout, FamilyChoice(family, member, "generation 1, Ready"))
    volume, target = published(rig, family)
    assert rig.files.layout.usage_file(member).exists()
    (rig.namespace.inside(target) / "new").write_text("compiled")
    rig.client.unpublish_as_kubelet(volume, target)
    what, files = captured(rig, volume)
    assert (what["family"], what["cacheName"], what["cacheNamespace"]) == ("llama", member.name, "ml-apps")
    assert files == {"new": b"compiled"}
    assert not rig.files.layout.usage_file(member).exists()
