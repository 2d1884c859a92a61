"""A layer that no program wrote to for some time is captured while its pod runs: once for each state."""

import os
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeOptions, VolumeRecord
from gkm_csi.volumes.captures import Captures
from gkm_csi.volumes.layers import NotMounted
from gkm_csi.volumes.settled import SettledLayers
from support.host.waiting import until

RECORD = VolumeRecord(
    *("csi-1", "/target", "pod", "ml-apps", "uid"),
    CacheRef("ml-apps", "llama"),
    digest="",
    volume_size=0,
    start_time="2026-01-01T00:00:00Z",
    options=VolumeOptions(capture=True),
)


class Layer:
    """A layer whose usage is looked at; `captured` has the time of each capture."""

    def __init__(self, seconds: float = 120.0) -> None:
        self.now = 0.0
        self.captured: list[float] = []
        self.requested = 0
        """When the file of the request was changed."""
        self.settled = SettledLayers(seconds, self._capture, self._changed_ns, clock=lambda: self.now)

    def _capture(self, _record: VolumeRecord) -> None:
        self.captured.append(self.now)

    def _changed_ns(self, target: Path, name: str) -> int:
        assert (str(target), name) == ("/target", ".gkm-capture")
        return self.requested

    def look(self, at: float, blocks: int, inodes: int = 100, record: VolumeRecord = RECORD) -> None:
        self.now = at
        self.settled.usage_measured(record, os.statvfs_result((4096, 4096, 1000, blocks, 0, 1000, inodes, 0, 0, 255)))


def test_a_layer_that_stays_as_it_is_is_captured_once() -> None:
    layer = Layer()
    for minute in range(10):
        layer.look(60.0 * minute, blocks=900)
    assert layer.captured == [120.0]


def test_each_write_begins_the_time_anew_also_one_of_empty_files() -> None:
    layer = Layer()
    layer.look(0, 900)
    layer.look(60, 800)
    layer.look(120, 800, inodes=99)
    layer.look(180, 800, inodes=99)
    assert layer.captured == []
    layer.look(240, 800, inodes=99)
    assert layer.captured == [240.0]


def test_what_comes_later_is_another_capture() -> None:
    layer = Layer()
    for minute in range(10):
        layer.look(60.0 * minute, blocks=900 if minute < 5 else 700)
    assert layer.captured == [120.0, 420.0]


def test_a_layer_that_returns_to_what_was_captured_is_not_captured_again() -> None:
    layer = Layer()
    for minute, blocks in enumerate([900, 900, 900, 800, 900, 900, 900]):
        layer.look(60.0 * minute, blocks)
    assert layer.captured == [120.0]


@pytest.mark.parametrize(
    ("seconds", "record"),
    [
        (0.0, RECORD),
        (120.0, replace(RECORD, options=VolumeOptions())),
        (120.0, replace(RECORD, digest="sha256:" + "a" * 64)),
    ],
    ids=["switched off", "not to be captured", "read-only"],
)
def test_other_volumes_are_not_captured(seconds: float, record: VolumeRecord) -> None:
    layer = Layer(seconds)
    for minute in range(10):
        layer.look(60.0 * minute, 900, record=record)
    assert layer.captured == []


def requests(*times: int, seconds: float = 0.0, record: VolumeRecord = RECORD) -> list[float]:
    """Return when a layer is captured whose request has these times of change, minute by minute."""
    layer = Layer(seconds)
    for minute, time in enumerate(times):
        layer.requested = time
        layer.look(60.0 * minute, 900 - minute, record=record)
    return layer.captured


@pytest.mark.parametrize(
    ("times", "captured"),
    [
        pytest.param([0, 0, 7, 7, 7, 7], [120.0], id="once"),
        pytest.param([7, 7, 7, 8, 8], [0.0, 180.0], id="again"),
        pytest.param([7, 8, 8, 8], [0.0, 120.0], id="one that comes too soon waits"),
        pytest.param([7, 8, 9, 10, 11, 12], [0.0, 120.0, 240.0], id="a pod that requests always"),
        pytest.param([7, 0, 7, 0], [0.0], id="a file that comes and goes"),
        pytest.param([-5, -5], [0.0], id="before 1970"),
    ],
)
def test_each_request_is_one_capture(times: list[int], captured: list[float]) -> None:
    assert requests(*times) == captured


@pytest.mark.parametrize(
    "record",
    [replace(RECORD, options=VolumeOptions()), replace(RECORD, digest="sha256:" + "a" * 64)],
    ids=["not to be captured", "read-only"],
)
def test_a_request_in_another_volume_is_none(record: VolumeRecord) -> None:
    assert requests(7, 8, 9, record=record) == []


def test_a_request_and_a_settled_layer_are_one_capture() -> None:
    layer = Layer()
    for minute in range(4):
        layer.requested = 7 if minute == 2 else 0
        layer.look(60.0 * minute, 900)
    assert layer.captured == [120.0]


def test_a_volume_that_is_gone_is_forgotten() -> None:
    layer = Layer()
    layer.look(0, 900)
    layer.settled.forget("csi-1")
    layer.look(120, 900)
    layer.look(180, 900)
    assert layer.captured == []


def test_a_volume_adds_no_copy_while_one_of_it_waits(tmp_path: Path) -> None:
    """One thread copies for all pods of a node, and the end of a pod waits for its turn."""
    copied: list[str] = []
    may_copy = Event()

    def mounted(record: VolumeRecord) -> None:
        copied.append(record.volume_id)
        assert may_copy.wait(20)
        raise NotMounted(Path(record.target_path))

    layers: Any = SimpleNamespace(mounted_layers=mounted)
    captures = Captures(Layout(tmp_path / "state", tmp_path / "run"), layers, 0.0)
    captures.capture_running(RECORD)
    until(lambda: copied == ["csi-1"], "the first copy runs")
    for volume in ("csi-2", "csi-1") * 5:
        captures.capture_running(replace(RECORD, volume_id=volume))
    ends = replace(RECORD, volume_id="csi-3")
    assert not captures.ensure_captured(ends)
    may_copy.set()
    until(lambda: captures.ensure_captured(ends), "the pod ends")
    captures.stop()
    assert copied == ["csi-1", "csi-2", "csi-1", "csi-3"]
