"""The private mount in a namespace of its own: a failure leaves nothing, and a mount stays within its bounds."""

from pathlib import Path

import pytest
from support.csi import mounting

pytestmark = pytest.mark.mounts

PRELUDE = """
from contextlib import ExitStack

for name in ("lower", "empty", "pods/p", "scratch"):
    (root / name).mkdir(parents=True)
(root / "lower" / "one").write_text("hello")
(root / "lower").chmod(0o555)

scratch = root / "scratch"

def mount(size=1 << 20, lowers=("lower", "empty"), scratch=scratch):
    with ExitStack() as stack:
        layers = [stack.enter_context(safe_open.open_directory(root, name)) for name in lowers]
        opened = stack.enter_context(targets.open_target(root, target))
        opened.make()
        point = stack.enter_context(opened.open_directory())
        overlay.mount_private(layers, point, "gkm:csi-1@sha256:00", scratch=scratch, size=size)
"""


def inside(tmp_path: Path, code: str) -> None:
    mounting.inside(tmp_path, PRELUDE, code)


def test_one_writable_mount_remains(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        (target / "new").write_text("mine")
        (target / "one").write_text("changed")
        assert (root / "lower" / "one").read_text() == "hello"
        assert not (root / "lower" / "new").exists()
        assert [found.kind for found in mounts()] == ["overlay"]
        assert list(scratch.iterdir()) == []
        scratch.rmdir()
        assert unmount_target() == 1
        assert not mounts()
        """,
    )


def test_an_empty_volume_is_a_layer_over_an_empty_directory(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(lowers=("empty",))
        assert list(target.iterdir()) == []
        (target / "new").write_text("mine")
        assert list((root / "empty").iterdir()) == []
        """,
    )


def test_every_user_may_write_at_the_top(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        os.umask(0o077)
        mount()
        assert target.stat().st_mode & 0o777 == 0o777
        """,
    )


def test_bytes_and_inodes_are_bounded_also_for_root(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(size=1 << 20)
        assert code_of(lambda: (target / "big").write_bytes(bytes((1 << 20) + 1))) == "ENOSPC"
        (target / "big").unlink()
        made = 0
        while code_of(lambda: (target / str(made)).mkdir()) == "nothing":
            made += 1
        assert 200 < made < overlay.MIN_INODES, made
        """,
    )


def test_it_is_nosuid_and_nodev(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        os.mknod(target / "zero", 0o020666, os.makedev(1, 5))
        assert code_of(lambda: (target / "zero").read_bytes()) == "EACCES"
        assert os.statvfs(target).f_flag & os.ST_NOSUID
        """,
    )


def test_a_refused_overlay_leaves_no_layer(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        target.mkdir()
        file = os.open(root / "lower" / "one", os.O_RDONLY)
        held = os.open(target, os.O_PATH)
        call = lambda: overlay.mount_private((file, file), held, "x", scratch=scratch, size=1 << 20)
        assert code_of(call) != "nothing"
        assert not mounts()
        scratch.rmdir()
        """,
    )


def test_a_refused_layer_mounts_nothing(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        assert code_of(lambda: mount(scratch=root / "missing")) == "ENOENT"
        assert not mounts()
        """,
    )


def test_the_layer_ends_with_the_mount_and_the_next_mount_has_a_new_one(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        (target / "new").write_text("mine")
        assert unmount_target() == 1
        mount()
        assert sorted(path.name for path in target.iterdir()) == ["one"]
        """,
    )


def test_a_view_of_a_mount_shows_nothing_that_is_mounted_inside(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        (target / "place").mkdir()
        (target / "place" / "mine").touch()
        syscalls.mount("x", str(target / "place"), "tmpfs", 0, "")
        assert list((target / "place").iterdir()) == []
        before = len(mounts())
        with targets.open_target(root, target) as opened, opened.open_directory() as point:
            view = syscalls.open_tree(point)
        assert os.listdir(f"/proc/self/fd/{view}/place") == ["mine"]
        assert len(mounts()) == before
        os.close(view)
        """,
    )


def test_a_view_of_an_invalid_descriptor_is_an_error(tmp_path: Path) -> None:
    inside(tmp_path, "assert code_of(lambda: syscalls.open_tree(987)) == 'EBADF'")


def test_a_mount_on_a_target_is_never_read(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        from gkm.hoststate.layout import Layout
        from gkm_csi.volumes.mounter import Mounter
        mounter = Mounter(Layout(root / "state", root / "run"), root)
        mount()
        def never(*_):
            raise AssertionError("a stranger's file system may never answer")
        targets.MountTarget.is_empty = never
        assert [mark.owner for mark in mounter.observe(target).mounts] == ["csi-1"]
        """,
    )


def test_own_mounts_have_the_path_that_kubelet_uses(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        from gkm.hoststate.layout import Layout
        from gkm_csi.volumes.records import VolumeRecords
        from gkm_csi.volumes.mounter import Mounter
        from gkm_csi.volumes.reconcile import reconcile
        mount()
        linked = root.with_name("linked")
        linked.symlink_to(root)
        layout = Layout(root / "state", root / "run")
        layout.make_directories()
        mounter = Mounter(layout, linked)
        assert [found.point for found in mounter.own_mounts()] == [str(linked / "pods" / "p" / "t")]
        reconcile(layout, VolumeRecords(layout), mounter)
        assert not mounts()
        """,
    )
