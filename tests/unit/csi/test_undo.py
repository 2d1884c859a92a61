"""A failed publish leaves nothing: every step fails once. And a failed repeat loses nothing."""

import pytest
from gkm.hoststate import records
from gkm.mounts.marks import Mark
from gkm.mounts.unmount import StillMounted
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes import request
from support.csi.desk import Desk


@pytest.mark.parametrize("step", ["look", "entry", "make", "mount"])
def test_a_step_on_the_machine_that_fails_is_undone(desk: Desk, step: str) -> None:
    desk.mounts.fails = step

    with pytest.raises((OSError, StatusError)):
        desk.publisher.publish(desk.asked())

    assert desk.is_clean()


@pytest.mark.parametrize("step", ["add", "write_usage"])
def test_a_file_that_cannot_be_written_is_undone(desk: Desk, step: str) -> None:
    desk.ledger.fails = step

    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(desk.asked())

    desk.ledger.fails = ""
    assert not desk.mounts.there
    assert not desk.mounts.directories
    assert desk.record() is None


def test_a_directory_that_was_there_before_stays_when_the_mount_fails(desk: Desk) -> None:
    asked = desk.asked()
    desk.mounts.directories.add(asked.volume.target)
    desk.mounts.fails = "mount"

    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(asked)

    assert desk.mounts.directories == {asked.volume.target}
    assert desk.record() is None


def test_a_mount_that_cannot_be_undone_retains_its_record(desk: Desk) -> None:
    desk.ledger.fails = "write_usage"
    desk.mounts.fails = "unmount"

    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(desk.asked())

    assert desk.record() is not None
    assert desk.mounts.there


def test_a_volume_can_be_published_after_a_failure(desk: Desk) -> None:
    desk.mounts.fails = "mount"
    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(desk.asked())
    desk.mounts.fails = ""

    desk.publisher.publish(desk.asked())

    assert desk.mounts.there == {desk.asked().volume.target: [desk.mark()]}


def test_a_repeat_that_must_wait_retains_record_and_digest(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    before = desk.record()
    desk.mounts.there.clear()
    desk.mounts.fails, desk.mounts.error = "entry", FileNotFoundError(2, "gone")

    with pytest.raises(StatusError) as caught:
        desk.publisher.publish(asked)

    assert caught.value.code is Code.UNAVAILABLE
    assert desk.record() == before


def test_a_repeat_that_finally_fails_without_a_mount_leaves_nothing(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    desk.mounts.there.clear()
    desk.mounts.fails = "mount"

    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(asked)

    assert desk.record() is None


def test_a_repeat_below_a_foreign_mount_is_refused_and_retains_its_record(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    desk.mounts.there[asked.volume.target].append(None)

    with pytest.raises(StatusError) as caught:
        desk.publisher.publish(asked)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert desk.record() is not None
    assert desk.mounts.there[asked.volume.target] == [desk.mark(), None]


def test_a_mount_that_lost_its_record_is_replaced(desk: Desk) -> None:
    asked = desk.asked()
    desk.mounts.directories.add(asked.volume.target)
    desk.mounts.there[asked.volume.target] = [Mark("csi-1", "sha256:00")]

    desk.publisher.publish(asked)

    assert desk.mounts.there[asked.volume.target] == [desk.mark()]


def test_a_damaged_record_is_refused_and_unpublish_removes_it(desk: Desk) -> None:
    path = desk.files.layout.volume_record("csi-1")
    path.parent.mkdir()
    path.write_text("{half")

    with pytest.raises(StatusError, match="damaged; delete the pod") as caught:
        desk.publisher.publish(desk.asked())
    desk.unpublisher.unpublish(desk.asked().volume)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert desk.is_clean()


def test_a_stray_file_beside_a_record_leaves_no_ghost_in_the_usage(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    stray = desk.files.layout.volume_record("csi-1").with_name("stray")
    stray.touch()

    desk.unpublisher.unpublish(asked.volume)

    assert desk.record() is None
    assert not desk.files.layout.usage_file(desk.ref).exists()


def test_a_record_that_cannot_be_removed_leaves_no_ghost_in_the_usage(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)

    def refuse(layout: object, volume_id: str) -> None:
        raise OSError(30, "Read-only file system", f"{layout}/{volume_id}")

    with monkeypatch.context() as patch:
        patch.setattr(records, "remove", refuse)
        with pytest.raises(OSError, match="Read-only"):
            desk.unpublisher.unpublish(asked.volume)
    desk.ledger.write_usage(desk.ref)

    assert not desk.files.layout.usage_file(desk.ref).exists()
    desk.unpublisher.unpublish(asked.volume)  # as kubelet does
    assert desk.record() is None


@pytest.mark.parametrize("error", [OSError(16, "Device or resource busy", "/secret"), StillMounted("many")])
def test_a_failed_unmount_is_an_error_and_retains_the_record(desk: Desk, error: Exception) -> None:
    desk.publisher.publish(desk.asked())
    desk.mounts.fails, desk.mounts.error = "unmount", error

    with pytest.raises(StatusError, match="cannot be unmounted on node-7") as caught:
        desk.unpublisher.unpublish(desk.asked().volume)

    assert caught.value.code is Code.INTERNAL
    assert "secret" not in caught.value.message
    assert desk.record() is not None


def test_a_usage_file_that_cannot_be_written_does_not_hold_up_a_pod(desk: Desk) -> None:
    desk.publisher.publish(desk.asked())
    desk.ledger.fails = "write_usage"

    desk.unpublisher.unpublish(desk.asked().volume)

    assert desk.record() is None


@pytest.mark.parametrize("other", ["the volume", "the target"])
def test_a_second_call_for_a_volume_in_progress_is_aborted(desk: Desk, other: str) -> None:
    first = desk.asked()
    second = desk.asked("csi-2").volume
    held = (
        request.VolumeTarget("csi-2", first.volume.target)
        if other == "the target"
        else request.VolumeTarget("csi-1", second.target)
    )

    with desk.underway.lock(held), pytest.raises(StatusError, match="kubelet retries") as caught:
        desk.publisher.publish(first)

    assert caught.value.code is Code.ABORTED
    assert desk.is_clean()
    desk.publisher.publish(first)


def test_a_failed_call_is_no_longer_under_way(desk: Desk) -> None:
    desk.mounts.fails = "mount"
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            desk.publisher.publish(desk.asked())
