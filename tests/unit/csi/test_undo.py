"""A failed publish leaves nothing: every step fails once. And a failed repeat loses nothing."""

from functools import partial

import pytest
from gkm.hoststate import records
from gkm.mounts.mountinfo import Mark
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes import request
from support.csi.desk import InMemoryNode
from support.host.descriptors_used_up import descriptors_used_up


@pytest.mark.parametrize("step", ["look", "entry", "make", "mount"])
def test_a_step_on_the_machine_that_fails_is_undone(memory_node: InMemoryNode, step: str) -> None:
    memory_node.mounts.fails = step

    with pytest.raises((OSError, StatusError), match="No space left on device"):
        memory_node.publisher.publish(memory_node.request())

    assert memory_node.is_clean()


@pytest.mark.parametrize("step", ["add", "write_usage"])
def test_a_file_that_cannot_be_written_is_undone(memory_node: InMemoryNode, step: str) -> None:
    memory_node.volume_records.fails = step

    with pytest.raises(OSError, match="No space left"):
        memory_node.publisher.publish(memory_node.request())

    memory_node.volume_records.fails = ""
    assert not memory_node.mounts.mounted
    assert not memory_node.mounts.directories
    assert memory_node.record() is None


def test_a_directory_that_was_there_before_stays_when_the_mount_fails(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.mounts.directories.add(asked.volume.target)
    memory_node.mounts.fails = "mount"

    with pytest.raises(OSError, match="No space left"):
        memory_node.publisher.publish(asked)

    assert memory_node.mounts.directories == {asked.volume.target}
    assert memory_node.record() is None


def test_a_mount_that_cannot_be_undone_retains_its_record(memory_node: InMemoryNode) -> None:
    memory_node.volume_records.fails = "write_usage"
    memory_node.mounts.fails = "unmount"

    with pytest.raises(OSError, match="No space left"):
        memory_node.publisher.publish(memory_node.request())

    assert memory_node.record() is not None
    assert memory_node.mounts.mounted


def test_a_volume_can_be_published_after_a_failure(memory_node: InMemoryNode) -> None:
    memory_node.mounts.fails = "mount"
    with pytest.raises(OSError, match="No space left"):
        memory_node.publisher.publish(memory_node.request())
    memory_node.mounts.fails = ""

    memory_node.publisher.publish(memory_node.request())

    assert memory_node.mounts.mounted == {memory_node.request().volume.target: [memory_node.mark()]}


def test_a_repeat_that_must_wait_retains_record_and_digest(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)
    before = memory_node.record()
    memory_node.mounts.mounted.clear()
    memory_node.mounts.fails, memory_node.mounts.error = "entry", FileNotFoundError(2, "gone")

    with pytest.raises(StatusError) as caught:
        memory_node.publisher.publish(asked)

    assert caught.value.code is Code.UNAVAILABLE
    assert "its files are missing from the store" in str(caught.value)
    assert memory_node.record() == before


def test_a_repeat_that_finally_fails_without_a_mount_leaves_nothing(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)
    memory_node.mounts.mounted.clear()
    memory_node.mounts.fails = "mount"

    with pytest.raises(OSError, match="No space left"):
        memory_node.publisher.publish(asked)

    assert memory_node.record() is None


def test_a_repeat_below_a_foreign_mount_is_refused_and_retains_its_record(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)
    memory_node.mounts.mounted[asked.volume.target].append(None)

    with pytest.raises(StatusError) as caught:
        memory_node.publisher.publish(asked)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert "foreign" in str(caught.value)
    assert memory_node.record() is not None
    assert memory_node.mounts.mounted[asked.volume.target] == [memory_node.mark(), None]


def test_a_mount_that_lost_its_record_is_replaced(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.mounts.directories.add(asked.volume.target)
    memory_node.mounts.mounted[asked.volume.target] = [Mark("csi-1", "sha256:00")]

    memory_node.publisher.publish(asked)

    assert memory_node.mounts.mounted[asked.volume.target] == [memory_node.mark()]


def test_a_damaged_record_is_refused_and_unpublish_removes_it(memory_node: InMemoryNode) -> None:
    path = memory_node.files.layout.volume_record("csi-1")
    path.parent.mkdir()
    path.write_text("{half")

    with pytest.raises(StatusError, match="damaged; delete the pod") as caught:
        memory_node.publisher.publish(memory_node.request())
    memory_node.unpublisher.unpublish(memory_node.request().volume)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert memory_node.is_clean()


def test_a_record_that_cannot_be_read_now_is_no_reason_to_delete_the_pod(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)
    path = memory_node.files.layout.volume_record("csi-1")
    publish = partial(memory_node.publisher.publish, asked)
    for call in (publish, partial(memory_node.unpublisher.unpublish, asked.volume)):
        with descriptors_used_up(path), pytest.raises(OSError, match="Too many open files"):
            call()
        assert path.exists(), "unpublished without the capture of its files"
        assert memory_node.mounts.mounted[asked.volume.target] == [memory_node.mark()]
    memory_node.unpublisher.unpublish(asked.volume)
    assert memory_node.is_clean()


def test_a_pod_does_not_start_empty_because_a_pointer_cannot_be_read_now(memory_node: InMemoryNode) -> None:
    asked = memory_node.request(cacheName=memory_node.ref.name, readOnly="false", ifUnavailable="empty")
    with (
        descriptors_used_up(memory_node.files.layout.pointer(memory_node.ref)),
        pytest.raises(OSError, match="Too many open files"),
    ):
        memory_node.publisher.publish(asked)
    assert memory_node.is_clean(), "it compiles what the node has"


def test_a_stray_file_beside_a_record_leaves_no_ghost_in_the_usage(memory_node: InMemoryNode) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)
    stray = memory_node.files.layout.volume_record("csi-1").with_name("stray")
    stray.touch()

    memory_node.unpublisher.unpublish(asked.volume)

    assert memory_node.record() is None
    assert not memory_node.files.layout.usage_file(memory_node.ref).exists()


def test_a_record_that_cannot_be_removed_leaves_no_ghost_in_the_usage(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = memory_node.request()
    memory_node.publisher.publish(asked)

    def refuse(layout: object, volume_id: str) -> None:
        raise OSError(30, "Read-only file system", f"{layout}/{volume_id}")

    with monkeypatch.context() as patch:
        patch.setattr(records, "remove", refuse)
        with pytest.raises(OSError, match="Read-only"):
            memory_node.unpublisher.unpublish(asked.volume)
    memory_node.volume_records.write_usage(memory_node.ref)

    assert not memory_node.files.layout.usage_file(memory_node.ref).exists()
    memory_node.unpublisher.unpublish(asked.volume)  # as kubelet does
    assert memory_node.record() is None


@pytest.mark.parametrize(
    "error", [OSError(16, "Device or resource busy", "/secret"), OSError(16, "more than 64 mounts")]
)
def test_a_failed_unmount_is_an_error_and_retains_the_record(memory_node: InMemoryNode, error: Exception) -> None:
    memory_node.publisher.publish(memory_node.request())
    memory_node.mounts.fails, memory_node.mounts.error = "unmount", error

    with pytest.raises(StatusError, match="cannot be unmounted on node-7") as caught:
        memory_node.unpublisher.unpublish(memory_node.request().volume)

    assert caught.value.code is Code.INTERNAL
    assert "secret" not in caught.value.message
    assert memory_node.record() is not None


def test_a_usage_file_that_cannot_be_written_does_not_hold_up_a_pod(memory_node: InMemoryNode) -> None:
    memory_node.publisher.publish(memory_node.request())
    memory_node.volume_records.fails = "write_usage"

    memory_node.unpublisher.unpublish(memory_node.request().volume)

    assert memory_node.record() is None


@pytest.mark.parametrize("other", ["the volume", "the target"])
def test_a_second_call_for_a_volume_in_progress_is_aborted(memory_node: InMemoryNode, other: str) -> None:
    first = memory_node.request()
    second = memory_node.request("csi-2").volume
    held = (
        request.VolumeTarget("csi-2", first.volume.target)
        if other == "the target"
        else request.VolumeTarget("csi-1", second.target)
    )

    with memory_node.volume_locks.lock(held), pytest.raises(StatusError, match="kubelet retries") as caught:
        memory_node.publisher.publish(first)

    assert caught.value.code is Code.ABORTED
    assert memory_node.is_clean()
    memory_node.publisher.publish(first)


def test_a_failed_call_is_no_longer_under_way(memory_node: InMemoryNode) -> None:
    memory_node.mounts.fails = "mount"
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            memory_node.publisher.publish(memory_node.request())
