"""Volumes for user namespaces, with real mounts: whole or absent, bounded, removed by one detach."""

import os
from pathlib import Path

import pytest
from gkm.hoststate.files import closing
from gkm.mounts import link_farm
from support.csi import mounting
from support.host.memory import traced_below

pytestmark = pytest.mark.mounts

PRELUDE = """
from contextlib import ExitStack
from gkm.mounts import copy_changes, link_farm
from gkm.mounts.link_farm import CONTENT, OUTSIDE_ID, MountedView

for name in ("tree/key", "lower/key", "empty", "pods/p", "scratch"):
    (root / name).mkdir(parents=True)
(root / "lower" / "key" / "one").write_text("hello")
(root / "lower" / "index").write_text("names")
(root / "tree" / "key").chmod(0o777)
scratch = root / "scratch"
LOWERS = ("tree", "lower", "empty")

def mount(size=None, lowers=LOWERS, scratch=scratch):
    with ExitStack() as stack:
        layers = [stack.enter_context(safe_open.open_directory(root, name)) for name in lowers]
        opened = stack.enter_context(targets.open_target(root, target))
        opened.make()
        point = stack.enter_context(opened.open_directory())
        link_farm.mount(layers, point, "gkm:csi-1@sha256:00", scratch=scratch, size=size)

def captured(view_of=link_farm.view):
    with ExitStack() as stack:
        lowers = [stack.enter_context(safe_open.open_directory(root, name)) for name in LOWERS[:2]]
        opened = stack.enter_context(targets.open_target(root, target))
        view = stack.enter_context(view_of(stack.enter_context(opened.open_directory())))
        return copy_changes.copy_changes(view, lowers, root / "kept", 1 << 20)

def kept():
    return {str(path.relative_to(root / "kept")) for path in (root / "kept").rglob("*") if path.is_file()}
"""


def inside(tmp_path: Path, code: str) -> None:
    mounting.inside(tmp_path, PRELUDE, code)


@pytest.mark.parametrize("size", [None, 1 << 20])
def test_each_name_at_the_top_is_a_link_to_the_content(tmp_path: Path, size: int | None) -> None:
    inside(
        tmp_path,
        f"""
        mount({size})
        assert sorted(os.listdir(target)) == [CONTENT, "index", "key"]
        assert os.readlink(target / "key") == ".gkm/key"
        assert (target / "key" / "one").read_text() == "hello"
        assert (target / "index").read_text() == "names"
        """,
    )


def test_the_topmost_mount_has_the_mark_and_the_one_inside_has_none(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        assert [found.kind for found in mounts()] == ["tmpfs", "overlay"]
        assert [(found.point, found.mark) for found in marked_mounts(mounts())] == [
            (str(target), Mark("csi-1", "sha256:00"))
        ]
        """,
    )


def test_one_unmount_removes_both_and_the_scratch_directory_is_free(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        scratch.rmdir()
        with (target / "key" / "one").open() as held:
            assert unmount_target() == 1
            assert mounts() == []
            assert held.read() == "hello"
        """,
    )


def test_what_a_killed_process_left_on_the_scratch_directory_goes_with_one_unmount(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        class Killed(Exception):
            pass
        def killed(*_):
            raise Killed
        syscalls.move_mount = killed
        keep, syscalls.umount2 = syscalls.umount2, lambda *_: None
        try:
            mount(1 << 20)
        except Killed:
            pass
        syscalls.umount2 = keep
        assert [found.kind for found in mounts()] == ["tmpfs", "overlay"]
        with targets.open_target(root, scratch) as opened:
            assert opened.unmount() == 1
        assert mounts() == []
        """,
    )


def test_a_private_volume_is_written_at_the_top_and_in_a_key_and_the_lower_layers_stay(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        (target / "new").mkdir()
        (target / "new" / "file").write_text("mine")
        (target / "key" / "two").write_text("mine")
        (target / "key" / "other").write_text("changed")
        (target / "key" / "other").rename(target / "key" / "one")
        assert sorted(path.name for path in (root / "lower").rglob("*")) == ["index", "key", "one"]
        assert (root / "lower" / "key" / "one").read_text() == "hello"
        assert list((root / "tree" / "key").iterdir()) == []
        """,
    )


def test_one_limit_holds_for_the_top_and_the_content(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        (target / "key" / "big").write_bytes(bytes(700 << 10))
        assert code_of(lambda: (target / "big").write_bytes(bytes(700 << 10))) == "ENOSPC"
        made = 0
        while code_of(lambda: (target / "key" / str(made)).touch()) == "nothing":
            made += 1
        assert 200 < made < overlay.MIN_INODES, made
        assert code_of(lambda: (target / "more").touch()) == "ENOSPC"
        """,
    )


def test_links_take_nothing_of_the_limit(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        for number in range(600):
            (root / "lower" / f"{number:0200}").touch()
        mount(1 << 20)
        usage = os.statvfs(target)
        assert usage.f_bavail * usage.f_frsize == 1 << 20
        assert usage.f_ffree > 200
        assert len(os.listdir(target)) == 603
        """,
    )


@pytest.mark.parametrize("page_bytes", [4096, 65536])
def test_a_long_link_has_a_page_of_this_kernel(monkeypatch: pytest.MonkeyPatch, page_bytes: int) -> None:
    monkeypatch.setattr(link_farm, "getpagesize", lambda: page_bytes)
    names = ["short", "a" * 122, "b" * 123, "c" * 200]  # with the directory before it, 127 bytes need no page
    assert f"size={3 * page_bytes}," in link_farm._options(names, None)
    assert f"size={(1 << 20) + 2 * page_bytes}," in link_farm._options(names, 1 << 20)


def test_a_read_only_volume_has_no_room_for_what_root_of_the_machine_writes(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        assert code_of(lambda: (target / "key" / "new").touch()) == "EROFS"
        assert code_of(lambda: (target / "big").write_bytes(bytes(8193))) == "ENOSPC"
        """,
    )


def test_an_empty_volume_has_no_link(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20, lowers=("empty",))
        assert os.listdir(target) == [CONTENT]
        (target / "new").write_text("mine")
        """,
    )


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ('(root / "lower" / CONTENT).mkdir()', "has the name .gkm at its top"),
        ("link_farm.MAX_NAMES = 1", "has more names at its top than the 1 that a user namespace allows"),
    ],
)
def test_names_that_cannot_be_links_are_refused_before_anything_is_mounted(
    tmp_path: Path, prepare: str, why: str
) -> None:
    inside(
        tmp_path,
        f"""
        {prepare}
        try:
            mount()
        except link_farm.Unlinkable as error:
            assert {why!r} in str(error), error
        else:
            raise AssertionError
        assert mounts() == []
        """,
    )


def test_names_beyond_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 of 160 bytes took 50 MiB in each of the four threads of the CSI driver, which has 192 MiB."""
    monkeypatch.setattr(link_farm, "MAX_NAMES", 10)
    for number in range(2_000):
        (tmp_path / f"{number:0160}").touch()
    with (
        closing(os.open(tmp_path, os.O_PATH)) as lower,
        traced_below(100 << 10),
        pytest.raises(link_farm.Unlinkable, match="more names at its top than the 10"),
    ):
        link_farm._top_names([lower, lower])


def test_a_refused_step_leaves_no_mount(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        (root / "lower" / "key").rename(root / "key")
        for name in ("tree", "lower"):
            (root / name).rename(root / f"{name}.dir")
            (root / name).touch()
        file = os.open(root / "lower", os.O_RDONLY)
        target.mkdir()
        held = os.open(target, os.O_PATH)
        call = lambda: link_farm.mount((file, file), held, "x", scratch=scratch, size=None)
        assert code_of(call) == "ENOTDIR"
        assert mounts() == []
        missing = root / "missing"
        os.rename(root / "lower.dir", root / "dir")
        lower = os.open(root / "dir", os.O_PATH)
        assert code_of(lambda: link_farm.mount((lower, lower), held, "x", scratch=missing, size=None)) == "ENOENT"
        assert mounts() == []
        """,
    )


def test_a_capture_has_what_was_written_at_the_top_and_in_keys_and_no_link(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        (target / "new").mkdir()
        (target / "new" / "kernel").write_text("mine")
        (target / "key" / "two").write_text("mine")
        (target / "table").write_text("mine")
        (target / "index").unlink()
        (target / "index").write_text("mine")
        (target / "passwd").symlink_to("/etc/passwd")
        found = captured()
        assert (found.files, found.skipped) == (4, 1), found
        assert kept() == {"new/kernel", "key/two", "table", "index"}
        """,
    )


def test_a_capture_sees_no_mount_of_the_pod(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        for place in ("key", "new"):
            (target / place).mkdir(exist_ok=True)
            syscalls.mount("x", str(target / place), "tmpfs", 0, "")
            (target / place / "foreign").touch()
        assert captured().files == 0
        """,
    )


def test_a_view_needs_the_overlay_inside(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        target.mkdir()
        assert code_of(captured) == "ENOENT"
        """,
    )


def test_a_link_that_the_pod_made_leads_to_the_content_and_nowhere_else(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(1 << 20)
        (target / "up").symlink_to(".gkm/..")
        (target / "two").symlink_to(".gkm/key")
        with targets.open_target(root, target) as opened, opened.open_directory() as point:
            with link_farm.view(point) as view:
                assert view.holder("key") == view.content
                assert {view.holder(name) for name in ("up", "two", "missing")} == {view.top}
        """,
    )
