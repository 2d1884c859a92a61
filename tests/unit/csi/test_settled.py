"""A layer that no program wrote to for some time is captured while its pod runs: once for each state."""

import os
from dataclasses import replace

import pytest
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeOptions, VolumeRecord
from gkm_csi.volumes.settled import SettledLayers

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
        self.settled = SettledLayers(seconds, lambda _: self.captured.append(self.now), clock=lambda: self.now)

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


def test_a_volume_that_is_gone_is_forgotten() -> None:
    layer = Layer()
    layer.look(0, 900)
    layer.settled.forget("csi-1")
    layer.look(120, 900)
    layer.look(180, 900)
    assert layer.captured == []
