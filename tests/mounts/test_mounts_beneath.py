"""Nothing leads out of the root, and a target is never a link."""

import errno
import os
from pathlib import Path

import pytest
from gkm.mounts import beneath, targets


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
    with beneath.directory(root, "a/b") as descriptor:
        assert beneath.name_of(descriptor) == str(root / "a" / "b")


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    with beneath.directory(tmp_path / "alias", "a") as descriptor:
        assert beneath.name_of(descriptor) == str(root / "a")


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
def test_what_is_not_beneath_is_refused(root: Path, relative: str, code: int) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as caught, beneath.directory(root, relative):
        pass
    assert caught.value.errno == code


def test_descriptors_are_given_back(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for relative in ("a", "missing", "out"):
        try:
            with targets.opened(root, root / relative / "t") as target, target.held():
                pass
        except OSError:
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_target_is_made_once_and_removed(root: Path) -> None:
    with targets.opened(root, root / "a" / "t") as target:
        assert target.point == str(root / "a" / "t")
        assert (target.make(), target.make()) == (True, False)
        assert target.is_empty()
        assert target.remove()
        assert target.remove()
    assert not (root / "a" / "t").exists()


@pytest.mark.parametrize("name", ["link", "out", "file"])
def test_a_target_that_is_no_directory_is_not_held(root: Path, name: str) -> None:
    with targets.opened(root, root / name) as target:
        assert not target.make()
        with pytest.raises(NotADirectoryError), target.held():
            pass
        assert not target.remove()
    assert os.path.lexists(root / name)


def test_what_others_put_into_a_target_is_never_removed(root: Path) -> None:
    with targets.opened(root, root / "a") as target:
        assert not target.is_empty()
        assert not target.remove()
    assert (root / "a" / "b").exists()


def test_a_target_outside_the_root_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in the subpath"), targets.opened(root, tmp_path / "outside" / "t"):
        pass
