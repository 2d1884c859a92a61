"""An upload keeps to its rate, and ends at its next piece when the agent stops."""

from pathlib import Path
from threading import Event

import pytest
from gkm.images.local_image import PIECE_BYTES
from gkm_agent.capturing.destination import CaptureStopped, UploadPace
from gkm_agent.capturing.progress import CaptureState
from gkm_agent.telemetry import metrics
from support.agent.capturing import CaptureNode, write_key
from support.registry.server import Registry


class Waits(Event):
    """An event that records how long it was waited for, and waits for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


def test_the_pauses_are_what_the_rate_demands() -> None:
    stop, sent = Waits(), list[int]()
    pace = UploadPace(PIECE_BYTES, stop, sent.append)  # a piece a second
    for number in range(1, 6):
        pace(number * PIECE_BYTES, 10 * PIECE_BYTES)
    # Nothing was waited for, so each piece is ahead of time by one second more, less what the loop took.
    assert all(number - 1 < seconds <= number for number, seconds in enumerate(stop.seconds, start=1))
    assert sent == [PIECE_BYTES] * 5


def test_what_is_not_sent_costs_no_time() -> None:
    stop, sent = Waits(), list[int]()
    pace = UploadPace(1, stop, sent.append)
    pace(1 << 30, 2 << 30)  # a blob that the registry has
    pace(1 << 20, 2 << 30)  # an upload that starts again
    assert sent == []
    assert stop.seconds == [0.0, 0.0]


def test_an_upload_ends_when_the_agent_stops_and_the_next_agent_finishes_it(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = CaptureNode(tmp_path, registry.host)
    write_key(node.key_file)
    node.capture()
    worker = node.worker()
    with monkeypatch.context() as patched:
        patched.setattr(metrics.CAPTURE_BYTES, "inc", lambda _count: worker.stop(0))
        with pytest.raises(CaptureStopped):
            worker.make_images()
    assert node.progress().state is CaptureState.PACKED
    assert node.worker().make_images()
    assert node.progress().state is CaptureState.ANNOUNCED
