"""Relocated trees: written once, shared, rewritten after a reboot, removed with their cache."""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate import trees
from gkm.mounts.relocation import tree_store, tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationInProgress, RelocationLayer, relocate
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable

DATA = Path(__file__).resolve().parents[4] / "data" / "triton-cache"
CACHE = MountPath("/root/.triton/cache")
OTHER = MountPath("/other")


@pytest.fixture
def content() -> Iterator[int]:
    """The real cache among the test data."""
    descriptor = os.open(DATA, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of one cache's trees, not made yet."""
    return tmp_path / "relocated" / "0123"


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()} - {".lock"}


def reboot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr(tree_store, "_BOOT", boot)


def test_a_tree_is_made_for_the_mount_path(content: int, place: Path) -> None:
    found = relocate(content, RelocationLayer(CACHE), place)
    assert found == place / CACHE.key / "tree"
    assert len(list(found.glob("*/__grp__add_kernel.json"))) == 2
    assert names(place) == {CACHE.key}


def test_it_is_made_once(content: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = relocate(content, RelocationLayer(CACHE), place)
    monkeypatch.setattr(tree_writer, "write", None)
    assert relocate(content, RelocationLayer(CACHE), place) == first


def test_another_mount_path_is_another_tree_and_leaves_the_first_alone(content: int, place: Path) -> None:
    first = relocate(content, RelocationLayer(CACHE), place)
    inode = first.stat().st_ino
    second = relocate(content, RelocationLayer(OTHER), place)
    assert second != first
    assert first.stat().st_ino == inode
    assert names(place) == {CACHE.key, OTHER.key}


def test_other_directories_are_not_touched(content: int, place: Path) -> None:
    kept = place / "somebody-else" / "file"
    kept.parent.mkdir(parents=True)
    kept.touch()
    relocate(content, RelocationLayer(CACHE), place)
    assert kept.exists()


def test_a_tree_records_its_mount_path_and_its_counts(content: int, place: Path) -> None:
    relocate(content, RelocationLayer(CACHE), place)
    metadata = json.loads((place / CACHE.key / "made.json").read_text())
    assert (metadata["mountPath"], metadata["rewritten"], metadata["incomplete"]) == (CACHE.text, 2, 0)


def test_a_tree_of_an_earlier_boot_is_made_anew(
    content: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = relocate(content, RelocationLayer(CACHE), place)
    half = next(found.glob("*/__grp__*"))
    half.chmod(0o644)
    half.write_bytes(b"")  # what a power cut leaves
    reboot(monkeypatch, tmp_path)
    assert relocate(content, RelocationLayer(CACHE), place) == found
    assert half.read_bytes()
    assert names(place) == {CACHE.key}


@pytest.mark.parametrize(
    "made",
    [
        b"",
        b"{}",
        b"\xff",
        b"[]",
        b'{"format": 0}',
        None,
    ],
)
def test_a_tree_whose_record_is_not_ours_is_made_anew(content: int, place: Path, made: bytes | None) -> None:
    relocate(content, RelocationLayer(CACHE), place)
    record = place / CACHE.key / "made.json"
    if made is None:
        record.unlink()
    else:
        record.write_bytes(made)
    relocate(content, RelocationLayer(CACHE), place)
    assert json.loads(record.read_text())["rewritten"] == 2


@pytest.mark.parametrize("field", ["format", "bootId", "mountPath", "rewritten", "incomplete"])
def test_every_field_of_the_record_counts(content: int, place: Path, field: str) -> None:
    relocate(content, RelocationLayer(CACHE), place)
    record = place / CACHE.key / "made.json"
    good = record.read_bytes()
    record.write_text(json.dumps({**json.loads(good), field: None}))
    relocate(content, RelocationLayer(CACHE), place)
    assert record.read_bytes() == good


def test_leftovers_of_a_killed_writer_are_removed(content: int, place: Path) -> None:
    left = place / ".tmp-0123456789abcdef" / "tree" / "K"
    left.mkdir(parents=True)
    (left / "__grp__half.json").touch(mode=0o444)
    relocate(content, RelocationLayer(CACHE), place)
    assert names(place) == {CACHE.key}


def test_a_concurrent_writer_is_an_error_and_removes_nothing(content: int, place: Path) -> None:
    under_way = place / ".tmp-0123456789abcdef"
    under_way.mkdir(parents=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RelocationInProgress):
            relocate(content, RelocationLayer(CACHE), place)
    assert under_way.exists()


def test_a_tree_that_is_there_needs_no_lock(content: int, place: Path) -> None:
    found = relocate(content, RelocationLayer(CACHE), place)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert relocate(content, RelocationLayer(CACHE), place) == found


def test_content_that_is_refused_leaves_nothing(content: int, place: Path, tmp_path: Path) -> None:
    found = relocate(content, RelocationLayer(CACHE), place)
    bad = tmp_path / "content"
    (bad / "K").mkdir(parents=True)
    (bad / "K" / "__grp__a.json").touch()
    (bad / "link").symlink_to("K")
    descriptor = os.open(bad, os.O_PATH)
    try:
        with pytest.raises(Unrelocatable, match="'link' is neither a file nor a directory"):
            relocate(descriptor, RelocationLayer(OTHER), place)
    finally:
        os.close(descriptor)
    assert names(place) == {CACHE.key}
    assert found.exists()


def test_a_full_disk_leaves_existing_trees(content: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **_named: object) -> RewriteCounts:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tree_writer, "write", full)
    with pytest.raises(OSError, match="No space left"):
        relocate(content, RelocationLayer(CACHE), place)
    assert names(place) == set()


def test_trees_are_removed_with_their_cache(content: int, place: Path) -> None:
    relocate(content, RelocationLayer(CACHE), place)
    relocate(content, RelocationLayer(OTHER), place)
    trees.remove(place)
    assert not place.exists()
    assert place.parent.exists()
    trees.remove(place)
