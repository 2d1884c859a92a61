"""Real overlays in a private namespace: read-only for every user, and removed by unmount."""

from pathlib import Path

import pytest
from support.csi import mounting

pytestmark = pytest.mark.mounts

PRELUDE = """
for name in ("lower,with:odd\\\\characters", "empty", "pods/p"):
    (root / name).mkdir(parents=True)
(root / "lower,with:odd\\\\characters" / "one").write_text("hello")
(root / "link").symlink_to(root / "empty")

def mount(name="gkm:csi-1@sha256:00"):
    with (
        safe_open.open_directory(root, "lower,with:odd\\\\characters") as lower,
        safe_open.open_directory(root, "empty") as empty,
        targets.open_target(root, target) as opened,
    ):
        opened.make()
        with opened.open_directory() as point:
            overlay.mount_read_only((lower, empty), point, name)
"""


def inside(tmp_path: Path, code: str) -> None:
    mounting.inside(tmp_path, PRELUDE, code)


def test_the_content_is_read_and_nothing_can_be_written(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        assert (target / "one").read_text() == "hello"
        assert code_of(lambda: (target / "one").write_text("x")) == "EROFS"
        assert code_of(lambda: (target / "new").mkdir()) == "EROFS"
        assert code_of(lambda: (target / "one").chmod(0o777)) == "EROFS"
        assert code_of(lambda: os.mknod(target / "dev", 0o60600, os.makedev(1, 3))) == "EROFS"
        """,
    )


def test_a_remount_does_not_make_it_writable(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        MS_REMOUNT, MS_BIND = 0x20, 0x1000
        for flags in (MS_REMOUNT, MS_REMOUNT | MS_BIND):
            code_of(lambda: syscalls.mount("x", str(target), "overlay", flags, ""))
            assert code_of(lambda: (target / "one").write_text("x")) == "EROFS"
        """,
    )


def test_mountinfo_shows_the_mark(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        assert [found.mark for found in marked_mounts(mounts())] == [Mark("csi-1", "sha256:00")]
        """,
    )


def test_all_stacked_mounts_are_unmounted(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount(); mount(); mount()
        assert len(mounts()) == 3
        assert unmount_target() == 3
        assert not mounts()
        assert unmount_target() == 0
        """,
    )


def test_unmounting_is_bounded(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        targets.MAX_STACKED = 2
        mount(); mount(); mount()
        try:
            unmount_target()
        except OSError as error:
            assert "more than 2 mounts" in str(error)
        else:
            raise AssertionError
        """,
    )


def test_a_mount_in_use_is_detached_and_its_open_file_stays_readable(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        with (target / "one").open() as file:
            assert unmount_target() == 1
            assert not mounts()
            assert file.read() == "hello"
        """,
    )


def test_a_link_is_never_unmounted_through(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        mount()
        alias = root / "pods" / "p" / "alias"
        alias.symlink_to(target)
        with targets.open_target(root, alias) as opened:
            assert opened.unmount() == 0
        assert len(mounts()) == 1
        """,
    )


def test_unmounting_a_missing_target_does_nothing(tmp_path: Path) -> None:
    inside(tmp_path, "assert unmount_target() == 0")


def test_one_lower_layer_is_refused_before_the_kernel_does(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        try:
            overlay.mount_read_only((0,), 0, "x")
        except ValueError:
            pass
        else:
            raise AssertionError
        """,
    )


def test_a_lower_layer_that_is_no_directory_is_refused_and_nothing_is_mounted(tmp_path: Path) -> None:
    inside(
        tmp_path,
        """
        target.mkdir()
        file = os.open(root / "lower,with:odd\\\\characters" / "one", os.O_RDONLY)
        held = os.open(target, os.O_PATH)
        assert code_of(lambda: overlay.mount_read_only((file, file), held, "x")) != "nothing"
        assert not mounts()
        """,
    )
