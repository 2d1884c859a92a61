"""Nothing leads out of the root, and a target is never a link."""

import errno
import os
from pathlib import Path

import pytest
from gkm.mounts import safe_open, syscalls, targets
from support.host.descriptors import open_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "link").symlink_to("a")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "magic").symlink_to("/proc/self/root")
    (tmp_path / "root" / "file").touch()
    return tmp_path / "root"


def test_a_directory_beneath_is_opened(root: Path) -> None:
    with safe_open.open_directory(root, "a/b") as descriptor:
        assert safe_open.resolved_path(descriptor) == str(root / "a" / "b")


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    with safe_open.open_directory(tmp_path / "alias", "a") as descriptor:
        assert safe_open.resolved_path(descriptor) == str(root / "a")


@pytest.mark.parametrize(
    ("relative", "code"),
    [
        ("link", errno.ELOOP),
        ("link/b", errno.ELOOP),
        ("out", errno.ELOOP),
        ("magic/etc", errno.ELOOP),
        ("..", errno.EXDEV),
        ("a/../../outside", errno.EXDEV),
        ("/etc", errno.EXDEV),
        ("file", errno.ENOTDIR),
        ("file/x", errno.ENOTDIR),
        ("missing", errno.ENOENT),
        ("", errno.ENOENT),
    ],
)
def test_a_path_outside_the_root_is_refused(root: Path, relative: str, code: int) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as caught, safe_open.open_directory(root, relative):
        pass
    assert caught.value.errno == code


def test_descriptors_are_closed(root: Path) -> None:
    for relative in ("a", "missing", "out"):
        try:
            with targets.open_target(root, root / relative / "t") as target, target.open_directory():
                pass
        except OSError:
            pass
    assert open_below(root) == []


def test_a_target_is_made_once_and_removed(root: Path) -> None:
    with targets.open_target(root, root / "a" / "t") as target:
        assert target.point == str(root / "a" / "t")
        assert (target.make(), target.make()) == (True, False)
        assert target.is_empty()
        assert target.remove()
        assert target.remove()
    assert not (root / "a" / "t").exists()


@pytest.mark.parametrize("name", ["link", "out", "file"])
def test_a_target_that_is_not_a_directory_is_refused(root: Path, name: str) -> None:
    with targets.open_target(root, root / name) as target:
        assert not target.make()
        with pytest.raises(NotADirectoryError), target.open_directory():
            pass
        assert not target.remove()
    assert os.path.lexists(root / name)


def test_foreign_files_in_a_target_are_never_removed(root: Path) -> None:
    with targets.open_target(root, root / "a") as target:
        assert not target.is_empty()
        assert not target.remove()
    assert (root / "a" / "b").exists()


def test_a_target_outside_the_root_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in the subpath"), targets.open_target(root, tmp_path / "outside" / "t"):
        pass


def test_eagain_is_retried(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # openat2(2): so it answers when something was renamed while a ".." was resolved, anywhere on the machine.
    once, refusals = syscalls._openat2, iter([True] * 5)

    def busy(directory: int, path: str, flags: int, resolve: int) -> int:
        if next(refusals, False):
            raise BlockingIOError(errno.EAGAIN, "try again")
        return once(directory, path, flags, resolve)

    monkeypatch.setattr(syscalls, "_openat2", busy)
    with safe_open.open_directory(root, "a") as found:
        assert safe_open.resolved_path(found) == str(root / "a")


def test_trying_again_has_an_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "try again")

    monkeypatch.setattr(syscalls, "_openat2", busy)
    with pytest.raises(BlockingIOError), safe_open.open_directory(root, "a"):
        pass
