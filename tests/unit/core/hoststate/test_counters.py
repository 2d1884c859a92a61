"""The file with the counters of the CSI process: written in one step, and not trusted by its reader."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import counters
from gkm.hoststate.counters import BUCKET_BOUNDS, CODES, EndedLayers, Histogram, NodeCounters
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state", tmp_path / "run")


def good() -> dict[str, Any]:
    return {
        "version": 1,
        "bounds": list(BUCKET_BOUNDS),
        "publish": {"OK": {"counts": [1] * (len(BUCKET_BOUNDS) + 1), "seconds": 2.5}},
    }


def test_counters_survive_save_and_load(layout: Layout) -> None:
    publishes = {
        "OK": Histogram().with_observation(0.002).with_observation(0.003).with_observation(99.0),
        "ABORTED": Histogram().with_observation(0.0),
    }
    counted = NodeCounters(publishes, EndedLayers(empty=3, written=2, written_bytes=1 << 40), without_cache=5)

    counters.save(layout, counted)

    assert counters.load(layout) == counted
    assert [path.name for path in layout.counters.parent.iterdir()] == ["counters.json"]


def test_a_file_of_a_version_without_layers_counts_on(layout: Layout) -> None:
    layout.counters.parent.mkdir(parents=True)
    layout.counters.write_text(json.dumps(good()))
    found = counters.load(layout)
    assert (found.layers, found.without_cache, list(found.publishes)) == (EndedLayers(), 0, ["OK"])


def test_a_layer_counts_by_what_was_left_in_it() -> None:
    assert EndedLayers().with_layer(0).with_layer(8192).with_layer(4096) == EndedLayers(1, 2, 12288)


def test_without_a_file_nothing_was_counted(layout: Layout) -> None:
    assert counters.load(layout) == NodeCounters()


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.0011, 1), (10.0, 11), (10.1, 12), (1e9, 12)])
def test_a_time_belongs_to_the_first_bucket_that_is_not_below_it(seconds: float, bucket: int) -> None:
    counts = Histogram().with_observation(seconds).counts

    assert [number for number, count in enumerate(counts) if count] == [bucket]
    assert len(counts) == len(BUCKET_BOUNDS) + 1


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_concurrent_observations_are_all_counted(times: list[float]) -> None:
    histogram = Histogram()
    for seconds in times:
        histogram = histogram.with_observation(seconds)

    assert sum(histogram.counts) == len(times)
    assert histogram.seconds == pytest.approx(math.fsum(times))


def _changed(*way: str | int, to: object) -> dict[str, Any]:
    value: Any = good()
    inner = value
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = to
    return dict(value)


HISTOGRAM = ("publish", "OK")


@pytest.mark.parametrize(
    "value",
    [
        {},
        _changed("version", to=2),
        _changed("bounds", to=[1, 2]),
        _changed("bounds", to=None),
        _changed("withoutCache", to=-1),
        _changed("withoutCache", to=True),
        _changed("publish", to=[]),
        _changed("publish", to={"my-namespace/my-pod": good()["publish"]["OK"]}),
        _changed("publish", to={"OK": []}),
        _changed("publish", to={"OK": {}}),
        _changed(*HISTOGRAM, "counts", to=[1]),
        _changed(*HISTOGRAM, "counts", to="1" * (len(BUCKET_BOUNDS) + 1)),
        _changed(*HISTOGRAM, "counts", 0, to=-1),
        _changed(*HISTOGRAM, "counts", 0, to=1.5),
        _changed(*HISTOGRAM, "counts", 0, to=True),
        _changed(*HISTOGRAM, "counts", 0, to="1"),
        _changed(*HISTOGRAM, "counts", 0, to=1 << 53),
        _changed(*HISTOGRAM, "counts", 0, to=10**400),
        _changed(*HISTOGRAM, "seconds", to=-0.1),
        _changed(*HISTOGRAM, "seconds", to=math.nan),
        _changed(*HISTOGRAM, "seconds", to=math.inf),
        _changed(*HISTOGRAM, "seconds", to="1"),
        _changed(*HISTOGRAM, "seconds", to=True),
        _changed(*HISTOGRAM, "seconds", to=10**400),
        _changed("layers", to=[]),
        _changed("layers", to={"ml-apps/llama": 1}),
        _changed("layers", to={"empty": -1}),
        _changed("layers", to={"written": True}),
        _changed("layers", to={"written_bytes": 1 << 53}),
    ],
)
def test_an_invalid_file_is_refused_with_its_path(layout: Layout, value: dict[str, Any]) -> None:
    path = layout.counters
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))

    with pytest.raises(UnreadableState, match=r"counters\.json"):
        counters.load(layout)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 60_000, b'{"version": 1' + b"1" * 70_000 + b"}", b" " * (65 << 10)],
)
def test_a_file_without_an_object_or_too_large_is_refused(layout: Layout, content: bytes) -> None:
    path = layout.counters
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    with pytest.raises(UnreadableState, match=r"counters\.json"):
        counters.load(layout)


def test_a_link_or_a_directory_instead_of_the_file_is_refused(layout: Layout, tmp_path: Path) -> None:
    path = layout.counters
    path.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").write_text(json.dumps(good()))
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnreadableState, match="symbolic links"):
        counters.load(layout)
    path.unlink()
    path.mkdir()
    with pytest.raises(UnreadableState, match="not a regular file"):
        counters.load(layout)


def test_a_file_instead_of_its_directory_is_refused(layout: Layout) -> None:
    layout.run.mkdir()
    layout.counters.parent.write_text("")
    with pytest.raises(UnreadableState, match="Not a directory"):
        counters.load(layout)


def test_a_file_with_every_code_is_within_the_limit(layout: Layout) -> None:
    most = Histogram(tuple([(1 << 53) - 1] * (len(BUCKET_BOUNDS) + 1)), 123456789.123456789)

    counters.save(layout, NodeCounters(dict.fromkeys(CODES, most)))

    assert len(counters.load(layout).publishes) == len(CODES)
