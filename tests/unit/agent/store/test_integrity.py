"""Bits that flip on a disk: found by the slow check, mended by fetching again, never under a pod."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from gkm.api.config import Store
from gkm.api.errors import Reason
from gkm.hoststate import records
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry
from gkm_agent.store import integrity
from gkm_agent.store.catalog import EntryInfo
from gkm_agent.store.scrubber import DueCheck, Scrubber, Stopped, due
from support.agent.node import IMAGE, REF, Node
from support.agent.store_node import FREE, ONE, bounded, content_of, inspected, inspector, is_whole, ready
from support.host.descriptors_used_up import descriptors_used_up
from support.host.sealed import unseal
from support.host.unlistable import unlistable


def flip_a_bit(content: Path) -> None:
    path = content / "kernel.cubin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    status = path.stat()
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut_a_file(content: Path) -> None:
    os.truncate(content / "kernel.cubin", 3)


def remove_a_file(content: Path) -> None:
    unseal(content)
    (content / "kernel.cubin").unlink()


def add_a_file(content: Path) -> None:
    unseal(content)
    (content / "extra.py").write_text("print()")


def put_a_link(content: Path) -> None:
    remove_a_file(content)
    (content / "kernel.cubin").symlink_to("/etc/hostname")


def spoil_the_list(content: Path) -> None:
    path = content.parent / entry.FILE_LIST
    path.chmod(0o644)
    path.write_text("{")


MEASURABLE = [cut_a_file, remove_a_file, add_a_file, put_a_link, spoil_the_list]


def test_a_flipped_bit_is_found_and_mended(node: Node) -> None:
    store = ready(node)
    flip_a_bit(content_of(node))

    inspected(node, store)

    assert node.pointer().state is CacheState.PENDING  # no further pod is given it
    assert node.settle()
    assert is_whole(node)
    assert node.images.steps() == ["verify", "describe", "fetch", "publish"]
    assert not list(node.layout.trash.iterdir())


def test_a_directory_that_cannot_be_listed_is_fetched_again(node: Node) -> None:
    store = ready(node)
    with unlistable(content_of(node)):
        inspected(node, store)

        assert node.settle(), f"the damaged entry stays: {node.pointer().message}"
        assert is_whole(node)


@pytest.mark.parametrize("spoil", MEASURABLE)
def test_after_a_boot_names_and_sizes_are_checked(node: Node, spoil: Callable[[Path], None]) -> None:
    ready(node)
    spoil(content_of(node))
    store = bounded(node, FREE)
    store.catalog.boot = "another"
    looking = inspector(node, store)

    assert looking.step()
    assert store.catalog.damage_of(ONE)
    node.now += 60
    assert node.settle()
    assert is_whole(node)


def test_a_whole_entry_is_found_whole_and_left_alone(node: Node) -> None:
    store = ready(node)

    inspected(node, store)

    assert store.catalog.damage_of(ONE) == ""
    assert node.settle()
    assert node.images.steps() == []
    assert not inspector(node, store).step()


def test_damage_under_a_pod_is_reported_and_not_repaired(node: Node) -> None:
    store = ready(node)
    node.mount(ONE)
    flip_a_bit(content_of(node))
    spoilt = (content_of(node) / "kernel.cubin").read_bytes()

    inspected(node, store)
    assert not node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, Reason.NODE_ERROR)
    assert "kernel.cubin: its content has changed" in pointer.message
    assert "pods still mount them: ml-apps/pod-foo; delete these pods" in pointer.message
    assert (content_of(node) / "kernel.cubin").read_bytes() == spoilt
    node.unmount()
    node.now += 3600
    assert node.settle()
    assert is_whole(node)


def test_pods_of_other_namespaces_are_counted_and_not_named(node: Node) -> None:
    store = ready(node)
    node.mount(ONE)
    for name in ("secret-1", "secret-2"):
        record = VolumeRecord(name, "/pods/y/mount", name, "other-team", "uid", CacheRef(None, "c"), ONE, 1, "")
        records.save(node.layout, replace(record, start_time="2026-01-01T00:00:00Z"))
    flip_a_bit(content_of(node))

    inspected(node, store)
    assert not node.settle()

    said = node.pointer().message
    assert "pods still mount them: ml-apps/pod-foo and 2 of other namespaces; delete these pods" in said
    assert "secret" not in said
    assert "other-team" not in said


def test_damage_is_remembered_over_a_restart(node: Node) -> None:
    store = ready(node)
    node.mount(ONE)
    flip_a_bit(content_of(node))
    inspected(node, store)
    node.settle()
    bounded(node, FREE)

    assert not node.settle()
    assert node.pointer().state is CacheState.FAILED


def test_an_entry_repaired_by_hand_is_not_fetched_again(node: Node) -> None:
    store = ready(node)
    flip_a_bit(content_of(node))
    inspected(node, store)
    flip_a_bit(content_of(node))

    assert node.settle()
    assert "fetch" not in node.images.steps()
    assert store.catalog.damage_of(ONE) == ""


def test_a_damaged_unnamed_entry_has_no_retention(node: Node) -> None:
    store = bounded(node, Store(min_free_percent=0, keep_seconds=1e9))
    node.want("llama", digest=ONE)
    node.settle()
    node.want()
    node.settle()
    assert node.entries() == {ONE}
    flip_a_bit(content_of(node))

    inspected(node, store)
    node.settle()
    assert node.entries() == set()


def test_ready_is_not_written_about_a_damaged_entry(node: Node) -> None:
    store = ready(node)
    pointer = node.pointer()
    flip_a_bit(content_of(node))
    inspected(node, store)

    with pytest.raises(OSError, match="damaged"):
        store.save(pointer)


def test_on_demand_everything_is_read_at_once(node: Node) -> None:
    store = ready(node)
    flip_a_bit(content_of(node))
    looking = inspector(node, store, interval=0)
    assert not looking.step()
    (node.layout.check_request).touch()

    assert looking.step()
    assert store.catalog.damage_of(ONE) == "kernel.cubin"
    assert not looking.step()
    assert not (node.layout.check_request).exists()


def test_an_entry_that_is_collected_while_it_is_checked_is_no_damage(node: Node) -> None:
    store = ready(node)

    class Collected(Scrubber):
        def _throttle(self, cost: int) -> None:
            del cost
            entry.remove_tree(node.layout.entry(ONE))

    node.now += 86_400
    assert Collected(store, Event(), 3600, clock=lambda: node.now).step()
    assert store.catalog.entries() == {}
    assert node.pointer().state is CacheState.READY


def test_a_check_is_slow_and_ends_when_the_agent_does(node: Node) -> None:
    store = ready(node)
    node.now += 86_400
    slow = Scrubber(store, Event(), 3600, clock=lambda: node.now, rate=1.0)
    slow.stop()

    with pytest.raises(Stopped):
        slow.step()


def test_a_list_that_leads_elsewhere_is_damage_and_is_not_followed(node: Node) -> None:
    ready(node)
    path = node.layout.entry(ONE) / entry.FILE_LIST
    path.chmod(0o644)
    path.write_text(path.read_text().replace("kernel.cubin", "../../../../etc/passwd"))

    found = integrity.check(node.layout, ONE)
    assert found is not None
    assert found.path == entry.FILE_LIST


def test_an_entry_that_is_not_there_cannot_be_checked(node: Node) -> None:
    with pytest.raises(FileNotFoundError):
        integrity.check(node.layout, ONE)


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, None),
        ({"a": EntryInfo(1, checked=NOW - 5, boot="b")}, None),
        ({"a": EntryInfo(1, checked=NOW - 5, boot="old")}, DueCheck("a", content=False)),
        ({"a": EntryInfo(1, checked=NOW - 5000, boot="b")}, DueCheck("a", content=True)),
        (
            {"a": EntryInfo(1, checked=NOW - 5000, boot="b"), "b": EntryInfo(1, checked=NOW - 6000, boot="b")},
            DueCheck("b", content=True),
        ),
        (
            {"a": EntryInfo(1, checked=NOW - 5000, boot="b"), "b": EntryInfo(1, checked=NOW, boot="old")},
            DueCheck("b", content=False),
        ),
        ({"a": EntryInfo(1, checked=NOW + 50, boot="b")}, DueCheck("a", content=True)),
        ({"a": EntryInfo(1, checked=0, boot="b", damage="x")}, None),
    ],
)
def test_what_is_due_next(notes: dict[str, EntryInfo], expected: DueCheck | None) -> None:
    assert due(notes, NOW, 1000, "b") == expected


def test_without_an_interval_nothing_is_read_again() -> None:
    assert due({"a": EntryInfo(1, checked=0, boot="b")}, NOW, 0, "b") is None


def test_two_caches_of_a_damaged_entry_are_both_taken_back(node: Node) -> None:
    store = ready(node)
    node.want("llama", "copy", image=IMAGE, digest=ONE)
    assert node.settle()
    flip_a_bit(content_of(node))
    inspected(node, store)

    assert node.pointer(REF).state is CacheState.PENDING
    assert node.settle()
    assert node.images.steps().count("fetch") == 1


@pytest.mark.parametrize("file", [entry.FILE_LIST, f"{entry.CONTENT}/kernel.cubin"])
def test_a_file_that_cannot_be_read_now_is_no_damage(node: Node, file: str) -> None:
    store = ready(node)
    node.now += 86_400
    looking = inspector(node, store)
    with descriptors_used_up(node.layout.entry(ONE) / file), pytest.raises(OSError, match="Too many open files"):
        looking.step()
    assert node.pointer().state is CacheState.READY, "pods do not get a sound cache until its registry answers"
    assert looking.step()
    assert store.catalog.damage_of(ONE) == ""
