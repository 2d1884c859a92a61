"""Relocated trees: written once, shared, rewritten after a reboot, removed with their cache."""

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate import trees
from gkm.mounts.relocation import tree_store, tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_limits import MAX_TREES, Uses
from gkm.mounts.relocation.tree_store import RelocationInProgress, RelocationLayer, relocate
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable
from support.host.descriptors_used_up import descriptors_used_up

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


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """The directory of its trees in memory, beside those of other caches."""
    return tmp_path / "memory" / "0123"


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
    assert json.loads(record.read_text())["mountPath"] == CACHE.text


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_a_tree_whose_record_cannot_be_read_now_stays(content: int, place: Path, code: int) -> None:
    """Volumes may show it."""
    record = relocate(content, RelocationLayer(CACHE), place).parent / "made.json"
    before = record.stat().st_ino
    with descriptors_used_up(record, code), pytest.raises(OSError, match=os.strerror(code)):
        relocate(content, RelocationLayer(CACHE), place)
    relocate(content, RelocationLayer(CACHE), place)
    assert record.stat().st_ino == before


@pytest.mark.parametrize("field", ["format", "bootId", "mountPath"])
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
        with pytest.raises(Unrelocatable, match="'link' is no file and no directory"):
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


def test_a_tree_in_memory_leaves_nothing_on_the_disk(content: int, place: Path, memory: Path) -> None:
    found = relocate(content, RelocationLayer(CACHE), place, memory=memory)
    assert found == memory / CACHE.key / "tree"
    assert names(memory) == {CACHE.key}
    assert not place.exists()


def test_a_tree_on_the_disk_is_found_where_memory_would_have_room(
    content: int, place: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = relocate(content, RelocationLayer(CACHE), place)
    monkeypatch.setattr(tree_writer, "write", None)
    assert relocate(content, RelocationLayer(CACHE), place, memory=memory) == first


def test_a_tree_too_large_for_memory_lies_on_the_disk(
    content: int, place: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_store, "MAX_TREE_MEMORY", 10_000)  # two group files in two directories take 13 KiB
    found = relocate(content, RelocationLayer(CACHE), place, memory=memory)
    assert found == place / CACHE.key / "tree"
    assert len(list(found.glob("*/__grp__*"))) == 2
    assert names(memory) == set()


def test_a_tree_lies_on_the_disk_where_the_file_system_in_memory_is_full(
    content: int, place: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = tree_writer.write

    def full_in_memory(
        content: int,
        destination: Path,
        mount_path: MountPath | None,
        *,
        is_writable: bool,
        max_memory_bytes: int | None,
    ) -> RewriteCounts:
        if max_memory_bytes is not None:
            destination.mkdir()
            raise OSError(28, "No space left on device")
        return write(content, destination, mount_path, is_writable=is_writable)

    monkeypatch.setattr(tree_writer, "write", full_in_memory)
    assert relocate(content, RelocationLayer(CACHE), place, memory=memory) == place / CACHE.key / "tree"
    assert names(memory) == set()


def test_the_trees_of_all_caches_together_have_a_limit_of_memory(
    content: int, place: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths, limit) = ([MountPath(f"/cache/{number}") for number in range(4)], tree_store.MAX_TREE_MEMORY)
    first = relocate(content, RelocationLayer(paths[0]), place, memory=memory)
    size = json.loads((first.parent / "made.json").read_text())["memoryBytes"]
    # As long as this process may write two more at the same time.
    monkeypatch.setattr(tree_store, "MAX_MEMORY", 2 * size + 2 * limit)
    other = memory.with_name("4567")
    found = [relocate(content, RelocationLayer(path), place, memory=other) for path in paths[1:]]
    assert [tree.is_relative_to(other) for tree in found] == [True, True, False]
    trees.remove(memory)
    assert relocate(content, RelocationLayer(OTHER), place, memory=other).is_relative_to(other)


@pytest.mark.parametrize("made", [None, b"{}"])
def test_a_tree_of_unknown_size_counts_as_large_as_any(
    content: int, place: Path, memory: Path, monkeypatch: pytest.MonkeyPatch, made: bytes | None
) -> None:
    monkeypatch.setattr(tree_store, "MAX_MEMORY", 3 * tree_store.MAX_TREE_MEMORY - 1)
    unknown = memory / "key"
    unknown.mkdir(parents=True)
    if made is not None:
        (unknown / "made.json").write_bytes(made)
    assert relocate(content, RelocationLayer(CACHE), place, memory=memory).is_relative_to(place)


def test_a_tree_in_memory_takes_no_more_than_it_counts(content: int, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        found = relocate(content, RelocationLayer(CACHE, is_writable=True), place, memory=Path(shared) / "0123")
        blocks = sum(path.stat().st_blocks * 512 for path in found.rglob("*"))
        inodes = 1 + len(list(found.rglob("*")))
        counted = json.loads((found.parent / "made.json").read_text())["memoryBytes"]
    assert counted == blocks + 1024 * inodes


def test_an_invalid_tree_leaves_memory_also_when_the_next_one_is_too_large(
    content: int, place: Path, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relocate(content, RelocationLayer(CACHE), place, memory=memory)
    reboot(monkeypatch, tmp_path)  # where /run outlives it
    monkeypatch.setattr(tree_store, "MAX_TREE_MEMORY", 1)
    assert relocate(content, RelocationLayer(CACHE), place, memory=memory).is_relative_to(place)
    assert names(memory) == set()


def test_trees_in_memory_and_on_the_disk_count_together(content: int, place: Path, memory: Path) -> None:
    layers = [RelocationLayer(MountPath(f"/cache/{number}")) for number in range(MAX_TREES)]
    for number, layer in enumerate(layers):
        relocate(content, layer, place, memory=memory if number % 2 else None)
    used = Uses([layers[0].key, layers[1].key])
    relocate(content, RelocationLayer(CACHE), place, lambda: used, memory)
    assert (names(place), names(memory)) == ({layers[0].key}, {layers[1].key, CACHE.key})


def test_trees_whose_writer_died_leave_memory(content: int, place: Path, memory: Path) -> None:
    relocate(content, RelocationLayer(CACHE), place, memory=memory)
    half = memory.with_name("4567") / ".tmp-0123456789abcdef" / "tree"
    half.mkdir(parents=True)
    tree_store.remove_unfinished(memory.parent)
    assert names(memory.with_name("4567")) == set()
    assert names(memory) == {CACHE.key}


def test_trees_are_removed_with_their_cache(content: int, place: Path) -> None:
    relocate(content, RelocationLayer(CACHE), place)
    relocate(content, RelocationLayer(OTHER), place)
    trees.remove(place)
    assert not place.exists()
    assert place.parent.exists()
    trees.remove(place)
