"""The cost of writing trees for the process and the node: threads, memory, inodes; and the eviction of trees."""

import json
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from gkm.hoststate import files, trees
from gkm.mounts.relocation import tree_store, tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_limits import MAX_TREES, AllInUse, Uses
from gkm.mounts.relocation.tree_store import RelocationInProgress, RelocationLayer
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable

DEADLINE = 60
PATH = MountPath("/cache")


@pytest.fixture
def content(tmp_path: Path) -> Iterator[int]:
    """A cache of one kernel."""
    top = tmp_path / "content"
    (top / "K").mkdir(parents=True)
    (top / "K" / "__grp__k.json").write_text(json.dumps({"child_paths": {"k.json": "/old/k.json"}}))
    (top / "K" / "k.json").write_text("{}")
    descriptor = os.open(top, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def layers(number: int) -> list[RelocationLayer]:
    return [RelocationLayer(MountPath(f"/path/{one}")) for one in range(number)]


def test_concurrent_writers_are_limited(content: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = [Event() for _ in range(tree_store.MAX_CONCURRENT)], Event()
    left = iter(begun)
    write = tree_writer.write

    def slow(*arguments: object, **more: object) -> RewriteCounts:
        next(left).set()
        assert go_on.wait(DEADLINE)
        return write(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(tree_writer, "write", slow)
    threads = [
        Thread(target=tree_store.relocate, args=(content, RelocationLayer(PATH), tmp_path / str(number)))
        for number in range(tree_store.MAX_CONCURRENT)
    ]
    try:
        for thread in threads:
            thread.start()
        assert all(event.wait(DEADLINE) for event in begun)
        with pytest.raises(RelocationInProgress):
            tree_store.relocate(content, RelocationLayer(PATH), tmp_path / "one more")
    finally:
        go_on.set()
        for thread in threads:
            thread.join(DEADLINE)
    monkeypatch.setattr(tree_writer, "write", write)
    assert tree_store.relocate(content, RelocationLayer(PATH), tmp_path / "one more").is_dir()
    # One that is there is found, whatever is being made.
    assert tree_store.relocate(content, RelocationLayer(PATH), tmp_path / "0").is_dir()


def test_a_failed_writer_releases_its_slot(content: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> RewriteCounts:
        raise Unrelocatable("no")

    with monkeypatch.context() as patch:
        patch.setattr(tree_writer, "write", refuse)
        for _ in range(tree_store.MAX_CONCURRENT + 1):
            with pytest.raises(Unrelocatable, match=r"^no$"):
                tree_store.relocate(content, RelocationLayer(PATH), tmp_path / "place")
    tree_store.relocate(content, RelocationLayer(PATH), tmp_path / "place")


def test_a_volume_that_comes_during_an_eviction_finds_no_tree_that_goes(content: int, tmp_path: Path) -> None:
    place, found = tmp_path / "place", layers(1)[0]
    for layer in layers(MAX_TREES):
        tree_store.relocate(content, layer, place)
    recorded: list[str] = []
    seen: list[Path] = []

    def volume() -> None:
        recorded.append(found.key)
        with suppress(RelocationInProgress):
            seen.append(tree_store.relocate(content, found, place, lambda: Uses(recorded)))

    comes = Thread(target=volume)
    looks = iter(("share", "eviction"))

    def in_use() -> Uses:
        uses = Uses(tuple(recorded))
        if next(looks, "") == "eviction":
            comes.start()
            comes.join(0.2)  # it ends, or waits for the end of the eviction
        return uses

    tree_store.relocate(content, RelocationLayer(PATH), place, in_use)
    comes.join(DEADLINE)

    assert (place / found.key).exists() == bool(seen), "a volume found a tree that went"
    assert not list(place.glob(".tmp-*"))


def test_a_disk_that_hangs_below_one_cache_holds_up_no_other(
    content: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, may_end = Event(), Event()
    read = files.read_object

    def slow(path: Path, limit: int) -> dict[str, Any]:
        if path.is_relative_to(tmp_path / "dead"):
            begins.set()
            assert may_end.wait(DEADLINE)
        return read(path, limit)

    layer, found = RelocationLayer(PATH), Event()

    def volume() -> None:
        tree_store.relocate(content, layer, tmp_path / "sound")
        found.set()

    tree_store.relocate(content, layer, tmp_path / "sound")
    monkeypatch.setattr(files, "read_object", slow)
    hangs = Thread(target=tree_store.relocate, args=(content, layer, tmp_path / "dead"))
    other = Thread(target=volume)
    try:
        hangs.start()
        assert begins.wait(DEADLINE)
        other.start()
        assert found.wait(DEADLINE / 2), "a volume of another cache waits for the disk"
    finally:
        may_end.set()
        for thread in (hangs, other):
            thread.join(DEADLINE)


def test_while_a_use_is_not_known_no_tree_goes_and_none_is_added(content: int, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for layer in layers(MAX_TREES):
        tree_store.relocate(content, layer, place)
    before = {path.name for path in place.iterdir()}
    with pytest.raises(AllInUse, match="a mounted volume on this node is unreadable"):
        tree_store.relocate(content, RelocationLayer(PATH), place, lambda: Uses(complete=False))
    assert {path.name for path in place.iterdir()} == before


@pytest.mark.parametrize("name", [".tmp-x", RelocationLayer(PATH).key])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_instead_of_a_tree_is_replaced(content: int, tmp_path: Path, name: str, kind: str) -> None:
    place, theirs = tmp_path / "place", tmp_path / "theirs"
    place.mkdir()
    theirs.mkdir()
    if kind == "file":
        (place / name).write_text("in the way")
    else:
        (place / name).symlink_to(theirs)
    assert tree_store.relocate(content, RelocationLayer(PATH), place).is_dir()
    assert theirs.is_dir()
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == [".lock"]


def test_a_file_instead_of_the_trees_is_removed_with_the_entry(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("in the way")
    trees.remove(tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_more_directories_than_may_be_made_refuse_a_private_layer_only(
    content: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_writer, "MAX_DIRECTORIES", 1)
    tree_writer.write(content, tmp_path / "plain", PATH)
    with pytest.raises(Unrelocatable, match="more than 1 directories"):
        tree_writer.write(content, tmp_path / "open", None, is_writable=True)


def test_a_truncated_listing_is_refused_only_where_names_are_needed(
    content: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_writer, "MAX_SIBLINGS", 2)
    directory = tmp_path / "content" / "K"
    (directory / "one").touch()
    tree_writer.write(content, tmp_path / "two", PATH)
    (directory / "two").touch()
    with pytest.raises(Unrelocatable, match=r"more than 2 files are beside 'K/__grp__k\.json'"):
        tree_writer.write(content, tmp_path / "three", PATH)
    tree_writer.write(content, tmp_path / "open", None, is_writable=True)


@pytest.mark.parametrize("kind", ["files", "directories"])
def test_memory_does_not_grow_with_the_cache(tmp_path: Path, content: int, kind: str) -> None:
    many = tmp_path / "content" / "many"
    many.mkdir()
    for number in range(15_000):
        path = many / f"{number:0200}"
        path.touch() if kind == "files" else path.mkdir()
    tracemalloc.start()
    try:
        tree_writer.write(content, tmp_path / "tree", PATH)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_without_a_path_a_directory_of_any_name_can_be_written_to(content: int, tmp_path: Path) -> None:
    (tmp_path / "content" / "__grp__directory" / "below").mkdir(parents=True)
    assert tree_writer.write(content, tmp_path / "tree", None, is_writable=True) == RewriteCounts(0, 0)
    assert (tmp_path / "tree" / "__grp__directory" / "below").stat().st_mode & 0o777 == 0o777
