"""Failures with private volumes, their captures and their stats leave nothing."""

from typing import Any

import pytest
from gkm.mounts.mountinfo import TooManyMounts
from gkm.mounts.relocation.tree_limits import AllInUse, TooMany
from gkm.mounts.relocation.tree_store import RelocationInProgress
from gkm.mounts.relocation.tree_writer import Unrelocatable
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.request import PublishRequest
from gkm_csi.volumes.stats import VolumeStats
from support.csi.desk import Desk
from support.host.waiting import until

PRIVATE = {"readOnly": "false", "mountPath": "/cache", "capture": "true"}


def private(desk: Desk) -> PublishRequest:
    return desk.asked(cacheName=desk.ref.name, **PRIVATE)


@pytest.mark.parametrize("step", ["look", "entry", "make", "prepared", "mount"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "/secret/path"), OSError(30, "Read-only")])
def test_a_step_of_a_private_volume_that_fails_is_undone(desk: Desk, step: str, error: Exception) -> None:
    desk.mounts.fails, desk.mounts.error = step, error

    with pytest.raises((OSError, StatusError)) as caught:
        desk.publisher.publish(private(desk))

    assert desk.is_clean()
    assert not isinstance(caught.value, StatusError) or "secret" not in caught.value.message
    desk.mounts.fails = ""
    desk.publisher.publish(private(desk))
    assert desk.mounts.layers[private(desk).volume.target] == ((2, 1), 1 << 30)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RelocationInProgress("now"), Code.ABORTED),
        (TooMany("8 paths"), Code.FAILED_PRECONDITION),
        (AllInUse("16 paths of others"), Code.UNAVAILABLE),
        (Unrelocatable("a link"), Code.FAILED_PRECONDITION),
        (OSError(28, "No space left on device"), Code.UNAVAILABLE),
        (FileNotFoundError(2, "No such file or directory"), Code.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("or_empty", [False, True])
def test_a_failed_preparation_has_its_code_or_gives_an_empty_volume(
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
        assert desk.mounts.layers[asked.volume.target] == ((), 1 << 30)
        return
    with pytest.raises(StatusError) as caught:
        desk.publisher.publish(asked)
    assert caught.value.code is code
    assert desk.is_clean()


def test_an_invalid_target_gives_no_empty_volume(desk: Desk) -> None:
    asked = desk.asked(cacheName=desk.ref.name, ifUnavailable="empty")
    desk.mounts.directories.add(asked.volume.target)
    desk.mounts.foreign.add(asked.volume.target)
    with pytest.raises(StatusError, match="not empty"):
        desk.publisher.publish(asked)
    assert desk.record() is None


def test_a_mount_that_fails_after_the_kernel_has_mounted_is_removed(
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


def test_a_repeat_of_a_private_volume_that_must_wait_retains_record_and_mount(desk: Desk) -> None:
    desk.publisher.publish(private(desk))
    before = desk.record()
    desk.mounts.there.clear()
    desk.mounts.fails, desk.mounts.error = "prepared", RelocationInProgress("now")
    with pytest.raises(StatusError) as caught:
        desk.publisher.publish(private(desk))
    assert caught.value.code is Code.ABORTED
    assert desk.record() == before


@pytest.mark.parametrize("step", ["room", "look"])
def test_stats_that_cannot_be_read_are_a_condition_and_no_error(desk: Desk, step: str) -> None:
    asked = private(desk)
    desk.publisher.publish(asked)
    desk.mounts.fails = step
    answer = VolumeStats(desk.ledger, desk.mounts).get(asked.volume)
    assert answer.volume_condition.abnormal
    assert "secret" not in answer.volume_condition.message
    assert list(answer.usage) == []


@pytest.mark.parametrize("step", ["mounted", "look", "entry", "prepared"])
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), TooManyMounts("many"), RelocationInProgress("now")]
)
def test_a_capture_that_fails_anywhere_costs_the_capture_and_not_the_end_of_the_pod(
    desk: Desk, step: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    asked = private(desk)
    desk.publisher.publish(asked)
    desk.mounts.fails, desk.mounts.error = step, error

    def gone() -> bool:
        try:
            desk.unpublisher.unpublish(asked.volume)
        except StatusError as refusal:
            assert refusal.code is Code.ABORTED
            return False
        return True

    until(gone, "the volume to go")
    assert desk.is_clean()
    assert not any(desk.files.layout.captured.iterdir())
    assert [line.message for line in caplog.records].count("capture failed") == 1
