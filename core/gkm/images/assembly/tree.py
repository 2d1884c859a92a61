"""Walk a cache directory in the order of Go's filepath.Walk, without following a link.

A walk leaves out what its selection does not pack, directories with all that they hold.

The build walks it several times, to look, to scan and to pack, so that the largest single directory bounds the memory.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import READ_DIRECTORY, READ_FILE, closing
from gkm.images.archives.member_names import checked_path
from gkm.images.assembly.selection import EVERYTHING, Selection
from gkm.images.local_image import PIECE_BYTES
from gkm.images.pulling.extract import MAX_FILES, MAX_PATHS_BYTES, check_directories
from gkm.runtimes.layout import FileKind

PassedOver = Callable[[str, FileKind, int], None]
"""Called for each file or directory that a walk leaves out, with its path, kind and bytes (0 for a directory)."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or directory of a cache at `path`, relative and with slashes. `size` in bytes, 0 for directories."""

    path: str
    directory: bool
    size: int
    executable: bool
    kind: FileKind
    _parent: int
    """The open descriptor of the parent directory; the walk closes it before the next entry."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def may_be_mark(self) -> bool:
        """Return whether MCV looks for a runtime's marker files in this path: not below `vendor` or hidden names.

        The image contains such directories all the same.
        """
        parts = self.path.split("/")
        directories = parts if self.directory else parts[:-1]
        return not any(part.startswith(".") or "vendor" in part for part in directories)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of a file, exactly `size` of them.

        Raises:
            GKMError: CONTENT_MISMATCH when the file changed since the listing.
            OSError: it cannot be read.
        """
        # Without file objects, which cost as much as the calls.
        with closing(os.open(self.name, READ_FILE, dir_fd=self._parent)) as descriptor:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size != self.size:
                raise self._changed_error()
            missing = self.size
            while missing:
                piece = os.read(descriptor, min(PIECE_BYTES, missing))
                if not piece:
                    raise self._changed_error()
                missing -= len(piece)
                yield piece
            if os.read(descriptor, 1):
                raise self._changed_error()

    def head(self, most: int) -> bytes:
        """Return the first bytes of the file, at most `most`; raises as `pieces`."""
        with closing(os.open(self.name, READ_FILE, dir_fd=self._parent)) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._changed_error()
            return os.read(descriptor, most)

    def read(self) -> bytes:
        """Return all bytes of a small file; raises as `pieces`."""
        return b"".join(self.pieces())

    def _changed_error(self) -> GKMError:
        return GKMError(
            Reason.CONTENT_MISMATCH,
            f"{self.path} changed while it was read",
            "build when no program writes to the cache",
        )


def walk(
    root: Path, selected: Selection = EVERYTHING, passed_over: PassedOver = lambda _path, _kind, _size: None
) -> Iterator[TreeEntry]:
    """Yield the selected files and directories below `root`; each is valid until the next one is read.

    Raises:
        GKMError: UNSAFE_CONTENT for links, devices and names that no node would extract, selected or not; TOO_LARGE for
            too many files or directories.
        OSError: it cannot be read.
    """
    length = directories = 0
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for files, entry in enumerate(_walk(descriptor, "", selected, passed_over), start=1):
        length += len(entry.path)
        if entry.directory:
            directories += 1
            check_directories(directories, files - directories)
        if files > MAX_FILES or length > MAX_PATHS_BYTES:
            raise _too_many(str(root))
        yield entry


def _too_many(where: str) -> GKMError:
    return GKMError(
        Reason.TOO_LARGE,
        f"{where} holds more than {MAX_FILES} files, or more than {MAX_PATHS_BYTES} bytes of names",
        "remove unused files",
    )


def _names(directory: int, prefix: str) -> list[str]:
    """Return the names in an open directory in their order; a directory of any size takes bounded memory and time."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in islice(entries, MAX_FILES + 1)]
    if len(names) > MAX_FILES:
        raise _too_many(prefix or "the directory")
    return sorted(names, key=os.fsencode)


def _walk(directory: int, prefix: str, selected: Selection, passed_over: PassedOver) -> Iterator[TreeEntry]:
    """Walk an open directory and close it."""
    try:
        for name in _names(directory, prefix):
            path = f"{prefix}{name}"
            checked_path(os.fsencode(f"io.triton.cache/{path}"))
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            is_directory = stat.S_ISDIR(found.st_mode)
            if not is_directory and not stat.S_ISREG(found.st_mode):
                raise GKMError(
                    Reason.UNSAFE_CONTENT,
                    f"{path} is no file and no directory; no node would accept it",
                    "remove it, or replace it by the file itself",
                )
            kind = selected.kind_of(path, is_directory=is_directory)
            if kind not in selected.packed:
                passed_over(path, kind, 0 if is_directory else found.st_size)
            elif is_directory:
                yield TreeEntry(path, directory=True, size=0, executable=True, kind=kind, _parent=directory)
                child = os.open(name, READ_DIRECTORY, dir_fd=directory)
                yield from _walk(child, f"{path}/", selected, passed_over)
            else:
                executable = bool(found.st_mode & stat.S_IXUSR)
                yield TreeEntry(
                    path, directory=False, size=found.st_size, executable=executable, kind=kind, _parent=directory
                )
    finally:
        os.close(directory)
