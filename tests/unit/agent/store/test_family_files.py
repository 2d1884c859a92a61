"""The files with the chosen members: written when they change, removed when a family ends, and read after a restart."""

from pathlib import Path

from gkm.hoststate import families, pointers
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_agent.store.families import FamilyFiles

LLAMA, QWEN = CacheRef("ml-apps", "llama"), CacheRef(None, "qwen")


def choice(ref: CacheRef, name: str) -> FamilyChoice:
    return FamilyChoice(ref, CacheRef(ref.namespace, name), "generation 1, Ready")


def test_what_changes_is_written_and_what_ends_is_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.caches.mkdir()
    files = FamilyFiles(layout)
    files.write({LLAMA: choice(LLAMA, "a"), QWEN: choice(QWEN, "b")}, complete=True)
    assert families.load(layout, LLAMA) == choice(LLAMA, "a")
    unchanged = layout.family(QWEN).stat().st_ino
    files.write({LLAMA: choice(LLAMA, "c"), QWEN: choice(QWEN, "b")}, complete=True)
    assert families.load(layout, LLAMA) == choice(LLAMA, "c")
    assert layout.family(QWEN).stat().st_ino == unchanged
    files.write({QWEN: choice(QWEN, "b")}, complete=False)
    assert families.load(layout, LLAMA) == choice(LLAMA, "c")
    files.write({QWEN: choice(QWEN, "b")}, complete=True)
    assert set(families.refs(layout)) == {QWEN}


def test_a_restarted_agent_removes_what_has_ended_and_mends_what_is_damaged(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.caches.mkdir()
    FamilyFiles(layout).write({LLAMA: choice(LLAMA, "a"), QWEN: choice(QWEN, "b")}, complete=True)
    layout.family(QWEN).write_text("{")
    FamilyFiles(layout).write({QWEN: choice(QWEN, "b")}, complete=True)
    assert families.load(layout, LLAMA) is None
    assert families.load(layout, QWEN) == choice(QWEN, "b")


def test_a_choice_is_no_pointer(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.caches.mkdir()
    pointers.save(layout, Pointer(LLAMA, "x", CacheState.READY))
    FamilyFiles(layout).write({LLAMA: choice(LLAMA, "a"), QWEN: choice(QWEN, "b")}, complete=True)
    assert list(pointers.refs(layout)) == [LLAMA]
    families.remove(layout, LLAMA)
    assert list(pointers.refs(layout)) == [LLAMA]


def test_a_full_disk_costs_a_line_and_the_next_pass_writes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.caches.mkdir()
    files = FamilyFiles(layout)
    layout.family(LLAMA).parent.parent.write_text("in the way")
    files.write({LLAMA: choice(LLAMA, "a"), QWEN: choice(QWEN, "b")}, complete=True)
    assert families.load(layout, QWEN) == choice(QWEN, "b"), "one that cannot be written stops the others"
    layout.family(LLAMA).parent.parent.unlink()
    files.write({LLAMA: choice(LLAMA, "a")}, complete=True)
    assert families.load(layout, LLAMA) == choice(LLAMA, "a")
