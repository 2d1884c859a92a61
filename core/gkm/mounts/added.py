"""What a pod added to its volume: copied out of the mount, as a stranger's files.

The pod had the mount to itself and may have left anything in it. Directories are opened one name at a time beneath a
descriptor and never through a link; only regular files are taken, and of them no more than the bounds.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_DEPTH: Final = 16
MAX_FILES: Final = 200_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20


class TooMuch(Exception):
    """The pod left more than is ever taken; the message says of what."""


@dataclass(frozen=True, slots=True)
class Added:
    """How many files were copied, of how many bytes together; `left` are links and the like, which never are."""

    files: int
    bytes: int
    left: int


def copy(mount: int, lowers: Sequence[int], destination: Path, max_bytes: int) -> Added:
    """Copy the files of `mount` that none of `lowers` has (descriptors of directories) into the new `destination`.

    A lower file that was only touched is taken for the same: what has its size and time was not written.

    Raises:
        TooMuch: more files or bytes, or deeper, than the bounds.
        OSError: the disk refused.
    """
    copying = _Copying(max_bytes)
    top = os.open(".", _DIRECTORY, dir_fd=mount)
    try:
        destination.mkdir(0o700)
        copying.directory(top, [_beneath(lower, ".") for lower in lowers], destination, 0)
    finally:
        os.close(top)
    return Added(copying.files, copying.bytes, copying.left)


class _Copying:
    def __init__(self, max_bytes: int) -> None:
        self.files = self.bytes = self.left = 0
        self._entries = 0
        self._max_bytes = max_bytes

    def directory(self, here: int, lowers: Sequence[int | None], there: Path, depth: int) -> None:
        """Copy what is new in `here`; `lowers` are the same directory below, and are closed."""
        try:
            if depth > MAX_DEPTH:
                raise TooMuch(f"directories lie more than {MAX_DEPTH} deep")
            with os.scandir(here) as entries:
                names = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries if self._counted()]
            for name, status in names:
                if stat.S_ISDIR(status.st_mode):
                    self._enter(here, name, lowers, there, depth)
                elif not stat.S_ISREG(status.st_mode):
                    self.left += 1
                elif not any(_same(lower, name, status) for lower in lowers):
                    self._file(here, name, there)
        finally:
            for lower in lowers:
                if lower is not None:
                    os.close(lower)

    def _enter(self, here: int, name: str, lowers: Sequence[int | None], there: Path, depth: int) -> None:
        below = os.open(name, _DIRECTORY, dir_fd=here)
        try:
            self.directory(below, [_beneath(lower, name) for lower in lowers], there / name, depth + 1)
        finally:
            os.close(below)

    def _counted(self) -> bool:
        self._entries += 1
        if self._entries > MAX_FILES:
            raise TooMuch(f"more than {MAX_FILES} files and directories")
        return True

    def _file(self, here: int, name: str, there: Path) -> None:
        source = os.open(name, _READ, dir_fd=here)
        try:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                self.left += 1
                return
            there.mkdir(0o700, parents=True, exist_ok=True)
            target = os.open(there / name, _WRITE, 0o400)
            try:
                while part := os.read(source, _CHUNK):
                    self.bytes += len(part)
                    if self.bytes > self._max_bytes:
                        raise TooMuch(f"more than {self._max_bytes} bytes")
                    _write(target, part)
            finally:
                os.close(target)
            self.files += 1
        finally:
            os.close(source)


def _write(target: int, part: bytes) -> None:
    while part:
        part = part[os.write(target, part) :]


def _beneath(lower: int | None, name: str) -> int | None:
    """Return a descriptor of a directory in a lower one; None where it has none."""
    if lower is None:
        return None
    try:
        return os.open(name, _DIRECTORY, dir_fd=lower)
    except OSError:
        return None


def _same(lower: int | None, name: str, seen: os.stat_result) -> bool:
    if lower is None:
        return False
    try:
        status = os.stat(name, dir_fd=lower, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (status.st_mode, status.st_size, status.st_mtime_ns) == (seen.st_mode, seen.st_size, seen.st_mtime_ns)
