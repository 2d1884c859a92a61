"""Publish and unpublish through the real socket, with real mounts."""

import errno
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.pulling import entry
from gkm.images.pulling.entry import FileList
from support.csi.nodes import publish_message
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts


def test_a_published_cache_can_be_read(rig: Rig) -> None:
    ref = rig.ready({"kernel/one.cubin": "hello"})
    volume, target = rig.volume()

    rig.client.publish(volume, target, {"cacheName": ref.name})

    assert rig.namespace.inside(target / "kernel" / "one.cubin").read_text() == "hello"


def test_a_pod_that_is_not_root_reads_what_an_agent_with_a_strict_umask_stored(rig: Rig) -> None:
    layout, digest = rig.files.layout, "sha256:" + "7" * 64
    before = os.umask(0o077)
    try:
        work = Path(tempfile.mkdtemp(dir=layout.work))
        (work / entry.CONTENT / "kernel").mkdir(parents=True)
        kernel = work / entry.CONTENT / "kernel" / "one.cubin"
        kernel.write_text("hello")
        kernel.chmod(0o444)  # as an extraction does
        entry.publish(layout, work, FileList(digest, "triton", 5, []), b"{}")
    finally:
        os.umask(before)
    ref = CacheRef("ml-apps", "strict")
    rig.files.pointer(ref, digest=digest)
    volume, target = rig.volume()

    rig.client.publish(volume, target, {"cacheName": ref.name})

    # A container is given the volume itself: only what is in it decides who may read.
    nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    read = rig.namespace.run("sh", "-c", f'cd "$1" && exec {nobody} cat kernel/one.cubin', "sh", target)
    assert (read.stdout, read.stderr) == ("hello", "")


def test_unpublish_leaves_nothing(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    assert rig.files.layout.usage_file(ref).exists()

    rig.client.unpublish(volume, target)

    assert rig.nothing_left(volume, target)
    assert not rig.files.layout.usage_file(ref).exists()
    assert target.parent.exists()  # kubelet's, not ours


def test_the_mount_is_nosuid_and_nodev_and_never_noexec(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    options = rig.mounts(target)[0].split()[5].split(",")

    assert {"ro", "nosuid", "nodev"} <= set(options)
    assert "noexec" not in options


def test_writing_fails(rig: Rig) -> None:
    ref = rig.ready({"one": "hello"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    inside = rig.namespace.inside(target)

    for attempt in (
        lambda: (inside / "one").write_text("x"),
        (inside / "new").touch,
        (inside / "one").unlink,
    ):
        with pytest.raises(OSError, match="Read-only") as caught:
            attempt()
        assert caught.value.errno == errno.EROFS


def test_a_bind_of_it_that_the_runtime_remounts_writable_stays_read_only(rig: Rig) -> None:
    # runc >= 1.2 applies an explicit "rw" to its bind of the volume (opencontainers/runc#4824).
    ref = rig.ready({"one": "hello"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    bind = rig.files.root / f"bind-{volume}"
    bind.mkdir()

    assert rig.namespace.run("mount", "--bind", target, bind).returncode == 0
    rig.namespace.run("mount", "-o", "remount,rw,bind", bind)

    with pytest.raises(OSError, match="Read-only"):
        (rig.namespace.inside(bind) / "one").write_text("x")
    with pytest.raises(OSError, match="Read-only"):
        (rig.namespace.inside(bind) / "new").touch()
    assert (rig.files.layout.entry(rig.record(volume).digest) / "cache" / "one").read_text() == "hello"
    assert rig.namespace.run("umount", bind).returncode == 0


def test_the_record_names_pod_and_cache(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()

    rig.client.publish(volume, target, {"cacheName": ref.name}, name="trainer-3")

    record = rig.record(volume)
    assert (record.ref, record.pod_name, record.target_path) == (ref, "trainer-3", str(target))
    usage = json.loads(rig.files.layout.usage_file(ref).read_text())
    assert [used["volumeId"] for used in usage["trainer-3"]] == [volume]


def test_the_usage_file_lists_every_remaining_pod(rig: Rig) -> None:
    ref = rig.ready()
    published = [rig.volume() for _ in range(3)]
    for number, (volume, target) in enumerate(published):
        rig.client.publish(volume, target, {"cacheName": ref.name}, name=f"trainer-{number}")

    rig.client.unpublish(*published[1])

    assert set(json.loads(rig.files.layout.usage_file(ref).read_text())) == {"trainer-0", "trainer-2"}


def test_publishing_again_mounts_once(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()

    for _ in range(3):
        rig.client.publish(volume, target, {"cacheName": ref.name})

    assert len(rig.mounts(target)) == 1


def test_a_repeated_publish_preserves_the_digest_of_an_updated_cache(rig: Rig) -> None:
    ref = rig.ready({"one": "old"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    rig.files.ready(ref.name, {"one": "new"})

    rig.client.publish(volume, target, {"cacheName": ref.name})
    assert rig.namespace.run("umount", target).returncode == 0
    rig.client.publish(volume, target, {"cacheName": ref.name})

    assert rig.namespace.inside(target / "one").read_text() == "old"


def test_a_repeated_publish_succeeds_after_the_cache_is_deleted(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})
    rig.files.pointer(ref, CacheState.DELETING)

    rig.client.publish(volume, target, {"cacheName": ref.name})

    assert len(rig.mounts(target)) == 1


def test_the_same_volume_for_another_cache_is_refused_and_stays_as_it_is(rig: Rig) -> None:
    ref, other = rig.ready({"one": "first"}), rig.ready({"one": "second"})
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    code, text = rig.refused(volume, target, {"cacheName": other.name})

    assert (code, "for another pod, another cache" in text) == ("ALREADY_EXISTS", True), text
    assert rig.namespace.inside(target / "one").read_text() == "first"


def test_the_same_volume_at_another_target_is_refused(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    _, elsewhere = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name})

    code, text = rig.refused(volume, elsewhere, {"cacheName": ref.name})

    assert (code, "is already published at another target" in text) == ("FAILED_PRECONDITION", True), text
    assert not elsewhere.exists()


def test_many_calls_for_one_volume_mount_once(rig: Rig) -> None:
    ref = rig.ready()
    volume, target = rig.volume()
    message = publish_message(volume, target, {"cacheName": ref.name})

    def publish(_: int) -> str:
        try:
            rig.client.call("NodePublishVolume", message)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(publish, range(64)))

    assert "OK" in answers
    assert answers <= {"OK", "ABORTED"}
    assert len(rig.mounts(target)) == 1


def test_many_volumes_at_once(rig: Rig) -> None:
    refs = [rig.ready() for _ in range(4)]
    volumes = [rig.volume() for _ in range(64)]

    def live(number: int) -> bool:
        volume, target = volumes[number]
        ref = refs[number % len(refs)]
        rig.client.publish(volume, target, {"cacheName": ref.name})
        read = rig.namespace.inside(target / "kernel" / "one.cubin").read_text() == f"kernel of {ref.name}"
        rig.client.unpublish(volume, target)
        return read

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(live, range(len(volumes))))
    assert all(rig.nothing_left(volume, target) for volume, target in volumes)
    assert not any(rig.files.layout.usage_file(ref).exists() for ref in refs)
