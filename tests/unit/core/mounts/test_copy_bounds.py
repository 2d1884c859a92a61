"""A copy of what a pod added to its volume is bounded: depth, number, bytes and memory."""

import os
import tracemalloc
from pathlib import Path

import pytest
from gkm.mounts import copy_changes, layer_walk
from gkm.mounts.layer_walk import LayerTooLarge
from support.csi.copied_volume import PLENTY, below, copied, copied_to, kept_of, volume

__all__ = ["below", "volume"]


def deep(volume: Path, levels: int) -> None:
    (volume.joinpath(*["d"] * levels)).mkdir(parents=True)


def test_depth_has_a_bound(volume: Path) -> None:
    deep(volume, layer_walk.MAX_DEPTH)
    copied(volume)
    deep(volume / "d", layer_walk.MAX_DEPTH)
    with pytest.raises(LayerTooLarge, match="more than 14 directories deep"):
        copied_to(volume.with_name("again"), volume, (), PLENTY)


def test_a_tree_of_hundreds_of_levels_is_refused(volume: Path) -> None:
    here = os.open(volume, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(LayerTooLarge, match="deep"):
        copied(volume)


@pytest.mark.parametrize("kind", ["files", "directories", "links"])
def test_their_number_has_a_bound(volume: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    make = {"files": Path.touch, "directories": Path.mkdir, "links": lambda path: path.symlink_to("x")}[kind]
    monkeypatch.setattr(copy_changes, "MAX_FILES", 10)
    for number in range(11):
        make(volume / str(number))  # type: ignore[operator]
    with pytest.raises(LayerTooLarge, match="more than 10 files"):
        copied(volume)


def test_files_of_the_cache_below_do_not_count(volume: Path, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_changes, "MAX_FILES", 10)
    for number in range(30):
        for place in (volume, below):
            (place / str(number)).touch()
            os.utime(place / str(number), ns=(10**18, 10**18))
    for number in range(5):
        (volume / f"added-{number}").touch()
    assert copied(volume, below).files == 5


def test_bytes_have_a_bound_in_whole_blocks(volume: Path) -> None:
    (volume / "one").write_bytes(bytes(4097))
    assert copied(volume, most=8192).bytes == 4097
    with pytest.raises(LayerTooLarge, match="more than the 8191 bytes"):
        copied_to(volume.with_name("again"), volume, (), 8191)


def test_empty_files_cost_something_too(volume: Path) -> None:
    for number in range(3):
        (volume / str(number)).touch()
    assert copied(volume, most=3 * 4096).files == 3
    with pytest.raises(LayerTooLarge, match="more than the 12287 bytes"):
        copied_to(volume.with_name("again"), volume, (), 3 * 4096 - 1)


def test_a_sparse_file_is_refused_before_its_first_byte(volume: Path) -> None:
    with (volume / "hole").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LayerTooLarge, match=r"more than the [0-9]+ bytes"):
        copied(volume)
    assert kept_of(volume) == {}


def test_memory_does_not_grow_with_the_number_of_files(volume: Path, below: Path) -> None:
    for number in range(2_500):
        (volume / f"{number:0200}").touch()
    # The interpreter's table of strings grows at once by megabytes, in one of two copies.
    assert min(peak_bytes(volume, below, f"kept-{number}") for number in range(2)) < 256 << 10


def peak_bytes(volume: Path, below: Path, kept: str) -> int:
    tracemalloc.start()
    try:
        assert copied_to(volume.with_name(kept), volume, [below], PLENTY).files == 2_500
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
