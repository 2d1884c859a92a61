"""What is withdrawn is deleted in the background: only a pull without space waits for it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pytest
from gkm.api.config import Store
from gkm.hoststate import trees
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.images.cache import CacheImage, Format, RuntimeCache
from gkm.images.reference import Reference
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.pointers import PointerStore
from gkm_agent.store.trash import Trash
from support.agent.fakes import digest_of
from support.agent.node import IMAGE, REF, Node
from support.host.waiting import scaled, until

MIB = 1 << 20


@dataclass
class Disk:
    """A disk of 100 MiB on which each directory in store and trash takes 10; deletions wait for `discarded`."""

    layout: Layout
    discarded: Event

    def remove(self, path: Path) -> None:
        assert self.discarded.wait(scaled(30))
        trees.remove(path)

    def measured(self, _path: Path) -> os.statvfs_result:
        used = sum(len(list(place.iterdir())) for place in (self.layout.store, self.layout.trash))
        block, total, free, no_limit = 1, 100 * MIB, (100 - 10 * used) * MIB, 0
        return os.statvfs_result((block, block, total, free, free, no_limit, no_limit, no_limit, 0, 255))


@pytest.fixture
def disk(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    layout.make_directories()
    disk = Disk(layout, Event())
    monkeypatch.setattr("gkm_agent.store.trash.trees.remove_side_by_side", disk.remove)
    yield disk
    disk.discarded.set()


def image(name: str, size: int) -> CacheImage:
    ref = Reference.parse(IMAGE).pinned(digest_of(name))
    return CacheImage(ref, digest_of(name), (RuntimeCache(Format.TRITON, (), size, None),), (), {})


def test_a_pass_of_the_agent_does_not_wait_for_a_deletion(disk: Disk, node: Node) -> None:
    node.want("llama")
    assert node.settle()
    node.want()
    node.agent.reconcile()
    assert node.entries() == set()
    assert len(list(disk.layout.trash.iterdir())) == 1

    node.want("llama")
    until(lambda: node.agent.reconcile() and node.entries() == {digest_of("one")}, "the cache is pulled again", 10)

    assert len(list(disk.layout.trash.iterdir())) == 1
    disk.discarded.set()
    node.settle()
    assert not list(disk.layout.trash.iterdir())


def test_a_start_does_not_wait_for_what_a_killed_agent_left(disk: Disk, node: Node) -> None:
    (disk.layout.trash / "old").mkdir()
    (disk.layout.work / "half").mkdir()
    node.restart()
    node.want("llama")
    until(lambda: node.agent.reconcile() and node.entries() == {digest_of("one")}, "the cache is pulled", 10)
    assert len(list(disk.layout.trash.iterdir())) == 2
    disk.discarded.set()
    node.settle()
    assert not list(disk.layout.trash.iterdir())


def test_only_the_pull_without_space_waits_for_the_trash(
    disk: Disk, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PointerStore(layout)
    (layout.trash / "old").mkdir()
    monkeypatch.setattr(os, "statvfs", disk.measured)
    budget = DiskBudget(store, Store(min_free_percent=0), lambda: 0.0)
    begun, asked = Event(), Event()
    clear = store.trash.is_emptying

    def seen() -> bool:
        asked.set()
        return clear()

    monkeypatch.setattr(store.trash, "is_emptying", seen)

    def large() -> None:
        with budget.reserve(REF, image("large", 95 * MIB)):
            begun.set()

    pull = Thread(target=large)
    pull.start()
    assert asked.wait(scaled(10))
    with budget.reserve(CacheRef("ml-apps", "small"), image("small", MIB)) as reservation:
        assert reservation is not None
    assert not begun.is_set()
    disk.discarded.set()
    assert begun.wait(scaled(10))
    pull.join()


def test_an_eviction_for_a_pull_is_awaited_and_no_further_entry_goes(
    disk: Disk, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.want("llama")
    node.images.tags[IMAGE] = digest_of("one")
    assert node.settle()
    (disk.layout.entry(digest_of("other")) / "cache").mkdir(parents=True)
    store = PointerStore(disk.layout)
    store.catalog.add(digest_of("other"), 10 * MIB, 2.0)
    store.catalog.add(digest_of("one"), 10 * MIB, 1.0)
    monkeypatch.setattr(os, "statvfs", disk.measured)
    node.want()
    node.agent = None  # type: ignore[assignment]  # its collector would remove both
    store.remove(REF)
    budget = DiskBudget(store, Store(min_free_percent=0, keep_seconds=3600), lambda: 0.0)
    budget.spare = frozenset({digest_of("one"), digest_of("other")})
    disk.discarded.set()
    with budget.reserve(REF, image("large", 85 * MIB)):
        assert len(node.entries()) == 1


def test_what_cannot_be_deleted_keeps_nobody_waiting_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def refused(path: Path) -> None:
        tried.append(path.name)
        if path.name == "stuck":
            raise OSError(5, "Input/output error", str(path))
        trees.remove(path)

    monkeypatch.setattr("gkm_agent.store.trash.trees.remove_side_by_side", refused)
    for name in ("stuck", "one", "two"):
        (tmp_path / name).mkdir()
    trash = Trash(tmp_path)
    ended = Event()
    trash.emptied = ended.set
    assert trash.is_emptying()
    trash.wait()
    assert ended.is_set()
    assert sorted(tried) == ["one", "stuck", "two"]
    assert not trash.is_emptying()
    trash.sweep()
    trash.wait()
    assert sorted(tried) == ["one", "stuck", "stuck", "two"]
