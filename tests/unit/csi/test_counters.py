"""The counters of the CSI process: which publishes count, and how often their file is written."""

from pathlib import Path

import pytest
from gkm.hoststate import counters
from gkm.hoststate.counters import CODES, Histogram
from gkm.hoststate.layout import Layout
from gkm_csi import counters as csi_counters
from gkm_csi.counters import PUBLISH_METHOD, Counters
from gkm_csi.status_errors import Code
from support.host.waiting import until


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state", tmp_path / "run")


def counted(layout: Layout) -> dict[str, int]:
    return {code: sum(histogram.counts) for code, histogram in counters.load(layout).publishes.items()}


def test_every_code_of_the_driver_is_counted() -> None:
    assert {code.value for code in Code} | {"OK"} <= CODES


def test_only_publishes_with_a_known_code_are_counted(layout: Layout) -> None:
    counting = Counters(layout)
    counting.observe(PUBLISH_METHOD, "OK", 0.003)
    counting.observe(PUBLISH_METHOD, "a pod's name", 0.003)
    counting.observe("NodeUnpublishVolume", "OK", 0.003)
    counting.observe(PUBLISH_METHOD, "OK", -1.0)  # a clock that ran backwards

    counting.write()

    assert counters.load(layout).publishes == {"OK": Histogram().with_observation(0.003).with_observation(0.0)}


def test_many_publishes_at_once_are_few_writes(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    save = counters.save

    def watched(layout: Layout, values: counters.NodeCounters) -> None:
        written.append(1)
        save(layout, values)

    monkeypatch.setattr(counters, "save", watched)
    counting = Counters(layout)
    counting.start()
    until(lambda: bool(written), "the file is there")
    for _ in range(5000):
        counting.observe(PUBLISH_METHOD, "OK", 0.003)
    counting.stop()

    assert counted(layout) == {"OK": 5000}
    assert len(written) < 10


def test_a_failed_write_is_repeated_also_without_a_change(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(csi_counters, "RETRY_SECONDS", 0.01)
    layout.counters.mkdir(parents=True)
    counting = Counters(layout)
    counting.observe(PUBLISH_METHOD, "OK", 0.003)
    counting.start()
    until(lambda: "not written to their file, tried again" in caplog.text, "the first write has failed")
    layout.counters.rmdir()
    until(layout.counters.is_file, "the file is there")
    counting.stop()
    assert counted(layout) == {"OK": 1}
