"""Failures with private volumes, their captures and their stats leave nothing."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from gkm.hoststate import files
from gkm.mounts import copy_changes
from gkm.mounts.copy_changes import CopyResult
from gkm.mounts.layer_walk import LayerTooLarge, TooManyBytes
from gkm.mounts.mountinfo import TooManyMounts
from gkm.mounts.relocation.tree_limits import AllInUse, TooMany
from gkm.mounts.relocation.tree_store import RelocationInProgress
from gkm.mounts.relocation.tree_writer import Unrelocatable
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes import captures
from gkm_csi.volumes.request import PublishRequest
from gkm_csi.volumes.stats import VolumeStats
from support.csi.desk import InMemoryNode
from support.host.waiting import scaled, until

PRIVATE = {"readOnly": "false", "mountPath": "/cache", "capture": "true"}


def private(memory_node: InMemoryNode, volume: str = "csi-1") -> PublishRequest:
    return memory_node.request(volume, cacheName=memory_node.ref.name, **PRIVATE)


@pytest.mark.parametrize("step", ["look", "entry", "make", "prepared", "mount"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "/secret/path"), OSError(30, "Read-only")])
def test_a_step_of_a_private_volume_that_fails_is_undone(
    memory_node: InMemoryNode, step: str, error: Exception
) -> None:
    memory_node.mounts.fails, memory_node.mounts.error = step, error

    with pytest.raises((OSError, StatusError)) as caught:
        memory_node.publisher.publish(private(memory_node))

    assert memory_node.is_clean()
    assert not isinstance(caught.value, StatusError) or "secret" not in caught.value.message
    memory_node.mounts.fails = ""
    memory_node.publisher.publish(private(memory_node))
    assert memory_node.mounts.layers[private(memory_node).volume.target] == ((2, 1), 1 << 30)


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (RelocationInProgress("now"), Code.ABORTED, "its paths are being rewritten for another pod"),
        (TooMany("8 paths"), Code.FAILED_PRECONDITION, ": 8 paths"),
        (AllInUse("16 paths of others"), Code.UNAVAILABLE, ": 16 paths of others"),
        (Unrelocatable("a link"), Code.FAILED_PRECONDITION, "with a private layer: a link"),
        (OSError(28, "No space left on device"), Code.UNAVAILABLE, "(No space left on device)"),
        (FileNotFoundError(2, "No such file or directory"), Code.UNAVAILABLE, "(No such file or directory)"),
    ],
)
@pytest.mark.parametrize("or_empty", [False, True])
def test_a_failed_preparation_has_its_code_or_gives_an_empty_volume(
    memory_node: InMemoryNode, error: Exception, code: Code, why: str, *, or_empty: bool
) -> None:
    memory_node.mounts.fails, memory_node.mounts.error = "prepared", error
    more = {"ifUnavailable": "empty"} if or_empty else {}
    asked = memory_node.request(cacheName=memory_node.ref.name, **PRIVATE, **more)

    if or_empty and code is not Code.ABORTED:
        memory_node.publisher.publish(asked)
        record = memory_node.record()
        assert record is not None
        assert (record.digest, record.options) == ("", asked.options)
        assert memory_node.mounts.layers[asked.volume.target] == ((), 1 << 30)
        return
    with pytest.raises(StatusError) as caught:
        memory_node.publisher.publish(asked)
    assert (caught.value.code, why in str(caught.value)) == (code, True), str(caught.value)
    assert memory_node.is_clean()


def test_an_invalid_target_gives_no_empty_volume(memory_node: InMemoryNode) -> None:
    asked = memory_node.request(cacheName=memory_node.ref.name, ifUnavailable="empty")
    memory_node.mounts.directories.add(asked.volume.target)
    memory_node.mounts.foreign.add(asked.volume.target)
    with pytest.raises(StatusError, match="not empty"):
        memory_node.publisher.publish(asked)
    assert memory_node.record() is None


def test_a_mount_that_fails_after_the_kernel_has_mounted_is_removed(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = memory_node.mounts.mount

    def then_fails(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 -- handed on
        mount(*arguments, **options)
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(memory_node.mounts, "mount", then_fails)
    with pytest.raises(OSError, match="busy"):
        memory_node.publisher.publish(private(memory_node))
    assert memory_node.is_clean()


def test_a_repeat_of_a_private_volume_that_must_wait_retains_record_and_mount(memory_node: InMemoryNode) -> None:
    memory_node.publisher.publish(private(memory_node))
    before = memory_node.record()
    memory_node.mounts.mounted.clear()
    memory_node.mounts.fails, memory_node.mounts.error = "prepared", RelocationInProgress("now")
    with pytest.raises(StatusError) as caught:
        memory_node.publisher.publish(private(memory_node))
    assert (caught.value.code, "its paths are being rewritten" in str(caught.value)) == (Code.ABORTED, True)
    assert memory_node.record() == before


@pytest.mark.parametrize("step", ["room", "look"])
def test_stats_that_cannot_be_read_are_a_condition_and_no_error(memory_node: InMemoryNode, step: str) -> None:
    asked = private(memory_node)
    memory_node.publisher.publish(asked)
    memory_node.mounts.fails = step
    answer = VolumeStats(memory_node.volume_records, memory_node.mounts).get(asked.volume)
    assert answer.volume_condition.abnormal
    assert "secret" not in answer.volume_condition.message
    assert list(answer.usage) == []


@pytest.mark.parametrize("step", ["mounted", "look", "entry", "prepared"])
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), TooManyMounts("many"), RelocationInProgress("now")]
)
def test_a_capture_that_fails_anywhere_costs_the_capture_and_not_the_end_of_the_pod(
    memory_node: InMemoryNode, step: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lost = lost_capture(memory_node, step, error)
    assert memory_node.is_clean()
    assert lost["message"].startswith("the files of the pod were not copied, so this capture is lost: ")
    assert [line.message for line in caplog.records].count(
        "changed files of a volume not copied, this capture of the volume is lost"
    ) == 1


@pytest.mark.parametrize(
    ("error", "reason", "why"),
    [
        (OSError(5, "Input/output error", "/secret/path"), "NodeError", "Input/output error"),
        (OSError(28, "No space left on device", "/secret/path"), "DiskFull", "No space left on device"),
        (LayerTooLarge("more than 14 directories deep"), "TooLarge", "more than 14 directories deep"),
        (TooManyMounts("many"), "NodeError", "TooManyMounts"),
    ],
)
def test_a_failed_capture_leaves_its_cause_for_the_agent(
    memory_node: InMemoryNode, error: Exception, reason: str, why: str
) -> None:
    assert lost_capture(memory_node, "mounted", error) == {
        "reason": reason,
        "message": f"the files of the pod were not copied, so this capture is lost: {why}",
    }


@pytest.mark.parametrize(
    ("spare", "reason", "why"),
    [
        (99, "DiskFull", "capture.minFreePercent leaves 99 bytes of the node's disk for it; free space on the node"),
        (100, "TooLarge", "more than the 100 bytes"),
    ],
)
def test_the_smaller_limit_of_a_copy_is_its_cause(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch, spare: int, reason: str, why: str
) -> None:
    def copy(_view: object, _lowers: object, _to: object, most: int) -> None:
        raise TooManyBytes(f"more than the {most} bytes")

    monkeypatch.setattr(captures, "_max_layer_bytes", lambda _mount: 100)
    monkeypatch.setattr(captures, "spare_bytes", lambda _directory, _percent: spare)
    monkeypatch.setattr(copy_changes, "copy_changes", copy)
    lost = lost_capture(memory_node, "", OSError())
    assert (lost["reason"], lost["message"].rpartition(": ")[2]) == (reason, why)


def test_a_capture_gets_its_name_after_its_files_are_on_the_disk(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def sync(directory: Path) -> None:
        named = [path.name for path in directory.parent.iterdir() if path != directory]
        synced.append(((directory / "captured.json").exists(), named))

    monkeypatch.setattr(files, "sync_file_system", sync)
    lost_capture(memory_node, "mounted", OSError(5, "Input/output error"))
    assert synced == [(True, [])]


def test_a_volume_that_is_not_mounted_loses_no_capture(memory_node: InMemoryNode) -> None:
    asked = private(memory_node)
    memory_node.publisher.publish(asked)
    memory_node.mounts.mounted.clear()
    until(lambda: ended(memory_node, asked), "the volume to go")
    assert list(memory_node.files.layout.captured.iterdir()) == []


def test_a_copy_that_does_not_end_holds_up_no_pod(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begins, may_end = Event(), Event()

    def copy(*_: object) -> CopyResult:
        begins.set()
        assert may_end.wait(scaled(60))
        return CopyResult(files=1, bytes=1, skipped=0)

    monkeypatch.setattr(captures, "_max_layer_bytes", lambda _mount: 100)
    monkeypatch.setattr(copy_changes, "copy_changes", copy)
    hangs, waits = private(memory_node, "csi-1"), private(memory_node, "csi-2")
    try:
        for asked in (hangs, waits):
            memory_node.publisher.publish(asked)
            assert not ended(memory_node, asked)
        assert begins.wait(scaled(60))
        for asked in (hangs, waits):
            assert not ended(memory_node, asked), "a copy has a time in which pods wait for it"
        monkeypatch.setattr(captures, "COPY_SECONDS", -1.0, raising=False)
        for asked in (hangs, waits):
            assert ended(memory_node, asked), "the end of a pod waits for a copy that does not end"
    finally:
        may_end.set()
        memory_node.unpublisher.captures.stop()
    assert memory_node.is_clean()
    lost = [line for line in caplog.records if line.message.startswith("copy for a capture hangs")]
    assert [vars(line)["volume"] for line in lost] == ["csi-1", "csi-2"]
    captured = [path.name for path in memory_node.files.layout.captured.iterdir()]
    assert captured == ["csi-1"], "a copy that ends late is a capture, and one that did not begin is none"


def test_a_capture_that_cannot_be_looked_for_does_not_hold_up_the_pod(
    memory_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = private(memory_node)
    memory_node.publisher.publish(asked)
    captured = memory_node.files.layout.captured
    stat = Path.stat

    def fails(path: Path, **more: bool) -> Any:  # noqa: ANN401 -- handed on
        if path.parent == captured:
            raise OSError(5, "Input/output error")
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", fails)
    until(lambda: ended(memory_node, asked), "the volume to go")
    assert memory_node.is_clean()


def ended(memory_node: InMemoryNode, asked: PublishRequest) -> bool:
    try:
        memory_node.unpublisher.unpublish(asked.volume)
    except StatusError as refusal:
        assert refusal.code is Code.ABORTED
        return False
    return True


def lost_capture(memory_node: InMemoryNode, step: str, error: Exception) -> dict[str, str]:
    """End a pod whose capture fails at a step; return what the record of the capture says about the loss."""
    asked = private(memory_node)
    memory_node.publisher.publish(asked)
    memory_node.mounts.fails, memory_node.mounts.error = step, error
    until(lambda: ended(memory_node, asked), "the volume to go")
    (record,) = memory_node.files.layout.captured.iterdir()
    assert [path.name for path in record.iterdir()] == ["captured.json"]
    described = json.loads((record / "captured.json").read_text())
    assert (described["volumeId"], described["files"], described["bytes"]) == ("csi-1", 0, 0)
    lost: dict[str, str] = described["lost"]
    return lost
