"""What fails leaves nothing: every step of publish fails once. Also what a repeat must never lose."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from csi_harness.mounts import MountsInMemory
from csi_harness.nodes import NODE, NodeFiles, node_files, publish_message
from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.mounts.marks import Mark
from gkm.mounts.mountinfo import TooManyMounts
from gkm.mounts.relocation import TooMany, UnderWay
from gkm.mounts.relocation_tree import Unrelocatable
from gkm.mounts.unmount import StillMounted
from gkm_csi import request
from gkm_csi.captures import Captures
from gkm_csi.layers import Layers
from gkm_csi.ledger import Ledger
from gkm_csi.publish import Publisher
from gkm_csi.refusals import Code, Refusal
from gkm_csi.request import Publish
from gkm_csi.stats import Stats
from gkm_csi.underway import Underway
from gkm_csi.unpublish import Unpublisher
from testbed.waiting import until


class FailingLedger(Ledger):
    fails = ""

    def add(self, record: records.VolumeRecord) -> None:
        if self.fails == "add":
            raise OSError(28, "No space left on device")
        super().add(record)

    def write_usage(self, ref: CacheRef) -> None:
        if self.fails == "write_usage":
            raise OSError(28, "No space left on device")
        super().write_usage(ref)


@dataclass
class Desk:
    files: NodeFiles
    mounts: MountsInMemory = field(default_factory=MountsInMemory)
    underway: Underway = field(default_factory=Underway)

    def __post_init__(self) -> None:
        self.ledger = FailingLedger(self.files.layout)
        layers = Layers(NODE, self.files.layout, self.ledger, self.mounts)
        self.publisher = Publisher(
            NODE,
            self.files.layout,
            ledger=self.ledger,
            mounter=self.mounts,
            layers=layers,
            underway=self.underway,
            driver_version=lambda: None,
        )
        captures = Captures(self.files.layout, layers.of_mounted)
        self.unpublisher = Unpublisher(
            NODE, ledger=self.ledger, mounter=self.mounts, underway=self.underway, captures=captures
        )
        self.ref = self.files.ready()

    def asked(self, volume: str = "csi-1", **attributes: str) -> Publish:
        told = attributes or {"cacheName": self.ref.name}
        return request.publish(publish_message(volume, self.files.target(volume), told), self.files.kubelet)

    def record(self) -> records.VolumeRecord | None:
        return records.load(self.files.layout, "csi-1")

    def is_clean(self) -> bool:
        left = (
            self.files.layout.volume_record("csi-1").parent.exists() or self.files.layout.usage_file(self.ref).exists()
        )
        return not left and not self.mounts.there and not self.mounts.directories

    def mark(self) -> Mark:
        record = self.record()
        assert record is not None
        return Mark("csi-1", record.digest)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with node_files() as files:
        yield Desk(files)


@pytest.mark.parametrize("step", ["look", "entry", "make", "mount"])
def test_a_step_on_the_machine_that_fails_is_undone(desk: Desk, step: str) -> None:
    desk.mounts.fails = step

    with pytest.raises((OSError, Refusal)):
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
    desk.mounts.directories.add(asked.place.target)
    desk.mounts.fails = "mount"

    with pytest.raises(OSError, match="No space left"):
        desk.publisher.publish(asked)

    assert desk.mounts.directories == {asked.place.target}
    assert desk.record() is None


def test_a_mount_that_cannot_be_undone_keeps_its_record(desk: Desk) -> None:
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

    assert desk.mounts.there == {desk.asked().place.target: [desk.mark()]}


def test_a_repeat_that_must_wait_keeps_record_and_digest(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    before = desk.record()
    desk.mounts.there.clear()
    desk.mounts.fails, desk.mounts.error = "entry", FileNotFoundError(2, "gone")

    with pytest.raises(Refusal) as caught:
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


def test_a_repeat_below_somebody_elses_mount_is_refused_and_keeps_its_record(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    desk.mounts.there[asked.place.target].append(None)

    with pytest.raises(Refusal) as caught:
        desk.publisher.publish(asked)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert desk.record() is not None
    assert desk.mounts.there[asked.place.target] == [desk.mark(), None]


def test_a_mount_that_lost_its_record_is_replaced(desk: Desk) -> None:
    asked = desk.asked()
    desk.mounts.directories.add(asked.place.target)
    desk.mounts.there[asked.place.target] = [Mark("csi-1", "sha256:00")]

    desk.publisher.publish(asked)

    assert desk.mounts.there[asked.place.target] == [desk.mark()]


def test_a_damaged_record_is_refused_and_unpublish_removes_it(desk: Desk) -> None:
    path = desk.files.layout.volume_record("csi-1")
    path.parent.mkdir()
    path.write_text("{half")

    with pytest.raises(Refusal, match="damaged; delete the pod") as caught:
        desk.publisher.publish(desk.asked())
    desk.unpublisher.unpublish(desk.asked().place)

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert desk.is_clean()


def test_a_stray_file_beside_a_record_leaves_no_ghost_in_the_usage(desk: Desk) -> None:
    asked = desk.asked()
    desk.publisher.publish(asked)
    stray = desk.files.layout.volume_record("csi-1").with_name("stray")
    stray.touch()

    desk.unpublisher.unpublish(asked.place)

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
            desk.unpublisher.unpublish(asked.place)
    desk.ledger.write_usage(desk.ref)

    assert not desk.files.layout.usage_file(desk.ref).exists()
    desk.unpublisher.unpublish(asked.place)  # as kubelet does
    assert desk.record() is None


@pytest.mark.parametrize("error", [OSError(16, "Device or resource busy", "/secret"), StillMounted("many")])
def test_an_unmount_that_fails_is_told_and_keeps_the_record(desk: Desk, error: Exception) -> None:
    desk.publisher.publish(desk.asked())
    desk.mounts.fails, desk.mounts.error = "unmount", error

    with pytest.raises(Refusal, match="cannot be unmounted on node-7") as caught:
        desk.unpublisher.unpublish(desk.asked().place)

    assert caught.value.code is Code.INTERNAL
    assert "secret" not in caught.value.message
    assert desk.record() is not None


def test_a_usage_file_that_cannot_be_written_does_not_keep_a_pod(desk: Desk) -> None:
    desk.publisher.publish(desk.asked())
    desk.ledger.fails = "write_usage"

    desk.unpublisher.unpublish(desk.asked().place)

    assert desk.record() is None


@pytest.mark.parametrize("other", ["the volume", "the target"])
def test_a_second_call_for_what_is_under_way_is_aborted(desk: Desk, other: str) -> None:
    first = desk.asked()
    second = desk.asked("csi-2").place
    held = (
        request.Place("csi-2", first.place.target) if other == "the target" else request.Place("csi-1", second.target)
    )

    with desk.underway.hold(held), pytest.raises(Refusal, match="kubelet retries") as caught:
        desk.publisher.publish(first)

    assert caught.value.code is Code.ABORTED
    assert desk.is_clean()
    desk.publisher.publish(first)


def test_a_failed_call_is_no_longer_under_way(desk: Desk) -> None:
    desk.mounts.fails = "mount"
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            desk.publisher.publish(desk.asked())


PRIVATE = {"readOnly": "false", "mountPath": "/cache", "capture": "true"}


def private(desk: Desk) -> Publish:
    return desk.asked(cacheName=desk.ref.name, **PRIVATE)


@pytest.mark.parametrize("step", ["look", "entry", "make", "prepared", "mount"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "/secret/path"), OSError(30, "Read-only")])
def test_a_step_of_a_private_volume_that_fails_is_undone(desk: Desk, step: str, error: Exception) -> None:
    desk.mounts.fails, desk.mounts.error = step, error

    with pytest.raises((OSError, Refusal)) as caught:
        desk.publisher.publish(private(desk))

    assert desk.is_clean()
    assert not isinstance(caught.value, Refusal) or "secret" not in caught.value.message
    desk.mounts.fails = ""
    desk.publisher.publish(private(desk))
    assert desk.mounts.layers[private(desk).place.target] == ((2, 1), 1 << 30)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnderWay("now"), Code.ABORTED),
        (TooMany("16 paths"), Code.FAILED_PRECONDITION),
        (Unrelocatable("a link"), Code.FAILED_PRECONDITION),
        (OSError(28, "No space left on device"), Code.UNAVAILABLE),
        (FileNotFoundError(2, "No such file or directory"), Code.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("or_empty", [False, True])
def test_what_cannot_be_prepared_has_its_code_or_an_empty_volume(
    desk: Desk, error: Exception, code: Code, *, or_empty: bool
) -> None:
    desk.mounts.fails, desk.mounts.error = "prepared", error
    more = {"ifUnavailable": "empty"} if or_empty else {}
    asked = desk.asked(cacheName=desk.ref.name, **PRIVATE, **more)

    if or_empty and code is not Code.ABORTED:
        desk.publisher.publish(asked)
        record = desk.record()
        assert record is not None
        assert (record.digest, record.options) == ("", asked.options)
        assert desk.mounts.layers[asked.place.target] == ((), 1 << 30)
        return
    with pytest.raises(Refusal) as caught:
        desk.publisher.publish(asked)
    assert caught.value.code is code
    assert desk.is_clean()


def test_what_is_wrong_with_the_target_is_no_reason_for_an_empty_volume(desk: Desk) -> None:
    asked = desk.asked(cacheName=desk.ref.name, ifUnavailable="empty")
    desk.mounts.directories.add(asked.place.target)
    desk.mounts.foreign.add(asked.place.target)
    with pytest.raises(Refusal, match="not empty"):
        desk.publisher.publish(asked)
    assert desk.record() is None


def test_a_mount_that_fails_after_the_kernel_has_mounted_is_taken_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = desk.mounts.mount

    def then_fails(*arguments: Any) -> None:  # noqa: ANN401 -- handed on
        mount(*arguments)
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(desk.mounts, "mount", then_fails)
    with pytest.raises(OSError, match="busy"):
        desk.publisher.publish(private(desk))
    assert desk.is_clean()


def test_a_repeat_of_a_private_volume_that_must_wait_keeps_record_and_mount(desk: Desk) -> None:
    desk.publisher.publish(private(desk))
    before = desk.record()
    desk.mounts.there.clear()
    desk.mounts.fails, desk.mounts.error = "prepared", UnderWay("now")
    with pytest.raises(Refusal) as caught:
        desk.publisher.publish(private(desk))
    assert caught.value.code is Code.ABORTED
    assert desk.record() == before


@pytest.mark.parametrize("step", ["room", "look"])
def test_stats_that_cannot_be_read_are_a_condition_and_no_error(desk: Desk, step: str) -> None:
    asked = private(desk)
    desk.publisher.publish(asked)
    desk.mounts.fails = step
    answer = Stats(desk.ledger, desk.mounts).of(asked.place)
    assert answer.volume_condition.abnormal
    assert "secret" not in answer.volume_condition.message
    assert list(answer.usage) == []


@pytest.mark.parametrize("step", ["mounted", "look", "entry", "prepared"])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), TooManyMounts("many"), UnderWay("now")])
def test_a_capture_that_fails_anywhere_costs_the_capture_and_not_the_end_of_the_pod(
    desk: Desk, step: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    asked = private(desk)
    desk.publisher.publish(asked)
    desk.mounts.fails, desk.mounts.error = step, error

    def gone() -> bool:
        try:
            desk.unpublisher.unpublish(asked.place)
        except Refusal as refusal:
            assert refusal.code is Code.ABORTED
            return False
        return True

    until(gone, "the volume to go")
    assert desk.is_clean()
    assert not any(desk.files.layout.captured.iterdir())
    assert [line.message for line in caplog.records].count("not captured") == 1
