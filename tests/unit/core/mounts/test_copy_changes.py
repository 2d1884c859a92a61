"""Copying the files that a pod added to its volume: copied files, skipped files, and files that change meanwhile."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.mounts import copy_changes
from gkm.mounts.copy_changes import CopyResult
from gkm.mounts.link_farm import MountedView
from support.csi.copied_volume import below, copied, kept_of, volume
from support.csi.odd_files import make_device, make_socket

__all__ = ["below", "volume"]


def same(lower: Path, volume: Path, name: str, text: str) -> None:
    """Make a file that is equal in the lower layer."""
    for path in (lower / name, volume / name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(10**18, 10**18))


def test_lower_files_are_skipped_and_new_files_are_copied(volume: Path, below: Path, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    same(below, volume, "K/kernel", "of the cache")
    same(beside, volume, "K/group", "rewritten")
    (volume / "K" / "new").write_text("compiled")

    assert copied(volume, beside, below) == CopyResult(1, 8, 0)

    assert kept_of(volume) == {b"K/new": b"compiled"}


@pytest.mark.parametrize("change", ["size", "time", "mode"])
def test_files_that_differ_from_lower_files_are_copied(volume: Path, below: Path, change: str) -> None:
    same(below, volume, "kernel", "of the cache")
    changed = volume / "kernel"
    match change:
        case "size":
            changed.write_text("longer than that of the cache")
            os.utime(changed, ns=(10**18, 10**18))
        case "time":
            os.utime(changed, ns=(10**18, 10**18 + 1))
        case _:
            changed.chmod(0o755)
    assert copied(volume, below).files == 1


def test_a_directory_replaced_by_a_file_and_a_file_by_a_directory(volume: Path, below: Path) -> None:
    (below / "one").write_text("a file")
    (volume / "one").mkdir()
    (volume / "one" / "new").write_text("x")
    (below / "two").mkdir()
    (volume / "two").write_text("y")
    copied(volume, below)
    assert kept_of(volume) == {b"one/new": b"x", b"two": b"y"}


def test_a_link_in_a_lower_layer_is_not_followed(volume: Path, below: Path, tmp_path: Path) -> None:
    same(tmp_path / "elsewhere", volume / "K", "kernel", "text")
    (below / "K").symlink_to(tmp_path / "elsewhere")
    assert copied(volume, below).files == 1


def test_nothing_new_leaves_an_empty_directory_without_those_in_it(volume: Path) -> None:
    (volume / "a" / "b").mkdir(parents=True)
    assert copied(volume) == CopyResult(0, 0, 0)
    assert list(volume.with_name("kept").iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        make_socket,
        make_device,
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("/etc"),
        lambda path: path.symlink_to(".."),
        lambda path: path.symlink_to(path),
    ],
    ids=["fifo", "socket", "device", "link to a file", "link to a directory", "link upwards", "link to itself"],
)
def test_special_files_are_skipped(volume: Path, make: Callable[[Path], None]) -> None:
    make(volume / "odd")
    (volume / "real").write_text("x")
    assert copied(volume) == CopyResult(1, 1, 1)
    assert kept_of(volume) == {b"real": b"x"}


def test_odd_names_are_copied_unchanged(volume: Path) -> None:
    names = [b"-rf", b" ", b"x" * 255, "ä".encode()]
    for name in names:
        with open(os.path.join(os.fsencode(volume), name), "wb") as file:  # noqa: PTH118, PTH123
            file.write(b"x")
    copied(volume)
    assert sorted(kept_of(volume)) == sorted(names)


def test_files_without_permissions_are_copied_by_root(volume: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (volume / "closed").mkdir()
    (volume / "closed" / "file").write_text("x")
    (volume / "closed" / "file").chmod(0)
    (volume / "closed").chmod(0)
    copied(volume)
    assert kept_of(volume) == {b"closed/file": b"x"}


def test_copies_have_no_special_permissions(volume: Path) -> None:
    (volume / "suid").write_text("x")
    (volume / "suid").chmod(0o6777)
    copied(volume)
    assert (volume.with_name("kept") / "suid").stat().st_mode & 0o7777 == 0o400


def test_a_growing_file_is_copied_up_to_its_first_size(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown = volume / "grown"
    grown.write_bytes(b"12345")
    read = os.read

    def growing(descriptor: int, size: int) -> bytes:
        with grown.open("ab") as file:
            file.write(b"more")
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", growing)
    assert copied(volume) == CopyResult(1, 5, 0)


def test_a_shrinking_file_is_copied_up_to_its_end(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrunk = volume / "shrunk"
    shrunk.write_bytes(b"12345")
    read = os.read

    def shrinking(descriptor: int, size: int) -> bytes:
        os.truncate(shrunk, 2)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", shrinking)
    assert copied(volume) == CopyResult(1, 2, 0)


@pytest.mark.parametrize("becomes", ["nothing", "a link", "a pipe"])
def test_a_file_replaced_during_the_copy_is_skipped_and_the_rest_is_copied(
    volume: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    (volume / "odd").write_text("a file")
    (volume / "real").write_text("x")
    opened = os.open

    def changing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "odd" and dir_fd is not None and not flags & os.O_CREAT:
            (volume / "odd").unlink()
            if becomes == "a link":
                (volume / "odd").symlink_to("/etc/passwd")
            elif becomes == "a pipe":
                os.mkfifo(volume / "odd")
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", changing)
    assert copied(volume) == CopyResult(1, 1, 1)
    assert kept_of(volume) == {b"real": b"x"}


def test_a_destination_that_is_there_is_not_written_to(volume: Path) -> None:
    volume.with_name("kept").mkdir()
    with pytest.raises(FileExistsError):
        copied(volume)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"line\nbreak", b".wh.kernel", b"bell\x07"])
def test_a_name_that_no_image_can_hold_is_skipped_alone(tmp_path: Path, name: bytes) -> None:
    source = tmp_path / "mount"
    source.mkdir()
    (source / "good").write_text("kept")
    descriptor = os.open(os.fsencode(source) + b"/" + name, os.O_CREAT | os.O_WRONLY)
    os.close(descriptor)
    mount = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = copy_changes.copy_changes(MountedView(mount), [], tmp_path / "kept", 1 << 20)
    finally:
        os.close(mount)
    assert (found.files, found.skipped) == (1, 1)


def test_a_disk_that_refuses_ends_the_copy(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume / "one").write_text("x")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "read", full)
    with pytest.raises(OSError, match="no space left"):
        copied(volume)
