"""Copy the files that a pod added to its volume out of the mount; the pod is not trusted.

The pod had the mount to itself and may have left anything in it. Directories are opened one name at a time beneath a
descriptor and never through a link; only regular files are copied, within bounds.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate.files import closing

MAX_DEPTH: Final = 14
"""Below the top: an image holds paths of 15 names (gkm.images.archives.member_names), and a capture becomes an image.
"""
MAX_FILES: Final = 200_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = {stat.S_IFDIR: _DIRECTORY, stat.S_IFREG: _READ}
_CHUNK: Final = 1 << 20
_WHITEOUT: Final = ".wh."
"""In an image layer this prefix marks a deleted file."""
BLOCK_BYTES: Final = 4096
"""The size that the smallest file counts as."""


class CaptureTooLarge(Exception):
    """The pod left more than the bounds; the message names the bound."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of copied files, and their bytes.

    `skipped` counts files that are never copied: links, special files, and names that no image can hold, one of which
    would make the whole capture unusable.
    """

    files: int
    bytes: int
    skipped: int


def copy_changes(mount: int, lowers: Sequence[int], destination: Path, max_bytes: int) -> CopyResult:
    """Copy the files of `mount` that none of `lowers` has (descriptors of directories) into the new `destination`.

    A lower file with the same mode, size and time counts as unchanged. The caller ensures that nothing is mounted
    inside `mount`. Files count in whole blocks.

    Raises:
        CaptureTooLarge: more files or bytes, or deeper directories, than the bounds.
        OSError: the disk refused.
    """
    copying = _Copier(max_bytes)
    with closing(os.open(".", _DIRECTORY, dir_fd=mount)) as top:
        destination.mkdir(0o700)
        with _open_in_each(lowers, ".") as below:
            copying.directory(top, below, destination, 0)
    return CopyResult(copying.files, copying.bytes, copying.skipped)


class _Copier:
    def __init__(self, max_bytes: int) -> None:
        self.files = self.bytes = self.skipped = 0
        self._entries = 0
        self._remaining_bytes = max_bytes
        self._max_bytes = max_bytes

    def directory(self, source: int, lowers: Sequence[int], destination: Path, depth: int) -> None:
        """Copy the new files in `source`; `lowers` are the same directory in the lower layers that have it."""
        if depth > MAX_DEPTH:
            raise CaptureTooLarge(f"directories lie more than {MAX_DEPTH} deep")
        # One entry at a time: the names of all files that a pod may leave exceed the memory of this process.
        with os.scandir(source) as entries:
            for entry in entries:
                self._count()
                self._entry(source, entry.name, lowers, destination, depth)

    def _entry(self, source: int, name: str, lowers: Sequence[int], destination: Path, depth: int) -> None:
        if not name.isprintable() or name.startswith(_WHITEOUT):
            self.skipped += 1
            return
        try:
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFREG and any(_unchanged(lower, name, status) for lower in lowers):
                return
            opened = os.open(name, _OPEN[kind], dir_fd=source) if kind in _OPEN else None
        except OSError:  # changed by a process that still has the mount
            opened = None
        if opened is None:
            self.skipped += 1
            return
        with closing(opened):
            if kind == stat.S_IFDIR:
                with _open_in_each(lowers, name) as below:
                    self.directory(opened, below, destination / name, depth + 1)
            else:
                self._file(opened, destination, name)

    def _count(self) -> None:
        self._entries += 1
        if self._entries > MAX_FILES:
            raise CaptureTooLarge(f"more than {MAX_FILES} files and directories")

    def _file(self, source: int, destination: Path, name: str) -> None:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            self.skipped += 1
            return
        # Checked before the first read: a sparse file claims any size. An empty file takes a block of the disk too.
        self._remaining_bytes -= max(1, -(-status.st_size // BLOCK_BYTES)) * BLOCK_BYTES
        if self._remaining_bytes < 0:
            raise CaptureTooLarge(f"more than {self._max_bytes} bytes")
        destination.mkdir(0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(destination / name, _WRITE, 0o400), "wb") as target:
            # A file that grows meanwhile is copied up to its first size.
            expected = status.st_size
            while expected and (part := os.read(source, min(_CHUNK, expected))):
                target.write(part)
                expected -= len(part)
        self.files += 1
        self.bytes += status.st_size - expected


@contextmanager
def _open_in_each(lowers: Sequence[int], name: str) -> Iterator[Sequence[int]]:
    """Hold the directory `name` of each of `lowers` that has it."""
    with ExitStack() as stack:
        found = []
        for lower in lowers:
            with suppress(OSError):
                found.append(stack.enter_context(closing(os.open(name, _DIRECTORY, dir_fd=lower))))
        yield found


def _unchanged(lower: int, name: str, upper: os.stat_result) -> bool:
    try:
        status = os.stat(name, dir_fd=lower, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (status.st_mode, status.st_size, status.st_mtime_ns) == (upper.st_mode, upper.st_size, upper.st_mtime_ns)
