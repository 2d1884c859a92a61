"""Entries that somebody or something damaged: fetched again, and never taken from under a pod."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.errors import Reason
from gkm.hoststate import locks, pointers
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.pulling import entry
from gkm_agent.caches.model import WantedCache
from support.agent.fakes import digest_of
from support.agent.node import IMAGE, REF, Node

ONE = digest_of("one")
COPY = CacheRef("ml-apps", "copy")


def without_list(path: Path) -> None:
    (path / entry.FILE_LIST).unlink()


def with_half_a_list(path: Path) -> None:
    (path / entry.FILE_LIST).chmod(0o644)
    (path / entry.FILE_LIST).write_text("{")


def with_a_list_of_another(path: Path) -> None:
    listed = json.loads((path / entry.FILE_LIST).read_text()) | {"digest": digest_of("two")}
    (path / entry.FILE_LIST).unlink()
    (path / entry.FILE_LIST).write_text(json.dumps(listed))


def without_content(path: Path) -> None:
    entry.remove_tree(path / entry.CONTENT)


def with_a_link_for_content(path: Path) -> None:
    entry.remove_tree(path / entry.CONTENT)
    (path / entry.CONTENT).symlink_to("/etc")


def as_a_file(path: Path) -> None:
    entry.remove_tree(path)
    path.write_text("no directory")


def as_a_link_to_nowhere(path: Path) -> None:
    entry.remove_tree(path)
    path.symlink_to("nowhere")


def as_a_link_to_itself(path: Path) -> None:
    """No system call can look at what lies in it, as on a disk that answers with EIO."""
    entry.remove_tree(path)
    path.symlink_to(path.name)


def as_a_link_to_a_directory(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    without_list(elsewhere)


DAMAGES = [
    without_list,
    with_half_a_list,
    with_a_list_of_another,
    without_content,
    with_a_link_for_content,
    as_a_file,
    as_a_link_to_nowhere,
    as_a_link_to_itself,
    as_a_link_to_a_directory,
]


def damaged(node: Node, damage: Callable[[Path], None] = without_list) -> None:
    """Make an entry and damage it; of the cache it is known that it failed, as after a try that met the damage."""
    node.want("llama", digest=ONE)
    assert node.settle()
    damage(node.layout.entry(ONE))
    pointers.save(node.layout, replace(node.pointer(), state=CacheState.FAILED, size_bytes=0))
    node.images.calls.clear()
    node.restart()


def is_whole(node: Node) -> bool:
    found = entry.find(node.layout, ONE)
    return found is not None and (found.path / entry.CONTENT / "kernel.cubin").read_text() == ONE


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_fetched_again(node: Node, damage: Callable[[Path], None]) -> None:
    damaged(node, damage)

    assert node.settle()

    assert is_whole(node)
    assert node.images.steps().count("fetch") == 1
    assert not list(node.layout.trash.iterdir())


def test_what_a_link_in_the_store_leads_to_is_left_as_it_is(node: Node) -> None:
    damaged(node, as_a_link_to_a_directory)
    content = node.layout.store.parent / "elsewhere" / entry.CONTENT

    assert node.settle()

    assert (content / "kernel.cubin").read_text() == ONE
    assert content.stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("damage", [without_content, as_a_link_to_itself])
def test_a_ready_cache_that_lost_its_content_is_fetched_again(node: Node, damage: Callable[[Path], None]) -> None:
    node.want("llama")
    node.settle()
    damage(node.layout.entry(ONE))

    assert node.settle()
    assert is_whole(node)


def test_a_damaged_entry_is_not_taken_away_before_the_image_has_been_let_through(node: Node) -> None:
    damaged(node)
    node.images.failures["verify"] = OSError("away")

    assert not node.settle()

    assert node.layout.entry(ONE).exists()


def test_a_mounted_damaged_entry_stays_and_the_message_names_its_pods(node: Node) -> None:
    damaged(node)
    node.mount(ONE)

    assert not node.settle()

    pointer = node.pointer()
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, Reason.NODE_ERROR)
    assert "files.json" in pointer.message
    assert "pods still mount them: ml-apps/pod-foo; delete these pods" in pointer.message
    assert (node.layout.entry(ONE) / entry.CONTENT / "kernel.cubin").exists()
    assert node.status().next_try is not None
    node.unmount()
    node.now += 600
    assert node.settle()
    assert is_whole(node)


def test_of_many_pods_a_few_are_named(node: Node) -> None:
    damaged(node)
    for number in range(9):
        node.mount(ONE, f"csi-{number}", pod=f"pod-{number}")

    assert not node.settle()

    assert "ml-apps/pod-3, ml-apps/pod-4 and 4 more" in node.pointer().message


def test_while_a_pod_is_being_given_a_damaged_entry_it_stays(node: Node) -> None:
    damaged(node)
    with locks.shared(node.layout.entry_lock(ONE)):
        assert not node.settle()

    assert node.layout.entry(ONE).exists()
    assert "a pod mounts them" in node.pointer().message
    node.now += 600
    assert node.settle()


def test_while_a_record_cannot_be_read_a_damaged_entry_stays(node: Node) -> None:
    damaged(node)
    record = node.layout.volume_record("csi-9")
    record.parent.mkdir()
    record.write_text("{")

    assert not node.settle()

    assert node.layout.entry(ONE).exists()
    assert "csi-9" in node.pointer().message


def test_no_pointer_says_ready_while_its_damaged_entry_is_away(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    without_list(node.layout.entry(ONE))
    seen: list[tuple[bool, CacheState]] = []

    def look() -> None:
        seen.append((node.layout.entry(ONE).exists(), node.pointer(REF).state))

    node.images.before["publish"] = look
    node.source.wanted.append(WantedCache(COPY, IMAGE, ONE))

    assert node.settle()

    assert [(there, state is CacheState.READY) for there, state in seen] == [(False, False)]
    assert {node.pointer(ref).state for ref in (REF, COPY)} == {CacheState.READY}


def test_ready_is_never_written_without_an_entry(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    ready = node.pointer()
    entry.remove_tree(node.layout.entry(ONE))

    with pytest.raises(OSError, match="removed"):
        node.agent._store.save(ready)
