"""Walk the files of a mounted volume and separate the files of the pod from the files of the layers below.

The pod is not trusted: it had the mount to itself and may have left anything in it. Directories are opened one name at
a time beneath a descriptor and never through a link.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from gkm.hoststate.files import READ_DIRECTORY, READ_FILE, closing
from gkm.mounts.link_farm import MountedView

MAX_DEPTH: Final = 14
"""Below the top: an image holds paths of 15 names (gkm.images.archives.member_names), and a capture becomes an image.
"""
_WHITEOUT: Final = ".wh."
"""In an image layer this prefix marks a deleted file."""


class LayerTooLarge(Exception):
    """The pod wrote more than a limit allows; the message names the limit."""


class TooManyBytes(LayerTooLarge):
    """The files of the pod have more bytes than the limit of a copy."""


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A regular file of a volume: `directory` is a descriptor, `parents` are the names from the top to it.

    `shadows` tells whether a layer below has a file of this path.
    """

    directory: int
    parents: tuple[str, ...]
    name: str
    shadows: bool

    def open(self) -> int:
        """Open the file and return a descriptor; it may have become another kind of file. Raises OSError."""
        return os.open(self.name, READ_FILE, dir_fd=self.directory)


class LayerVisitor(Protocol):
    """Called by `walk` for each file of a volume, in the order of directories."""

    def added(self, file: LayerFile) -> None:
        """Handle a file that the pod wrote."""

    def unchanged(self, file: LayerFile) -> None:
        """Handle an unchanged file of a lower layer."""

    def skipped(self) -> None:
        """Handle a skipped file: a link, a special or vanished file, or a name that no image can hold."""


def walk(view: MountedView, lowers: Sequence[int], visitor: LayerVisitor, check: Callable[[int], None]) -> None:
    """Walk the files of a volume and compare them with the lower layers `lowers` (directory descriptors).

    A lower file with the same mode, size and time is unchanged. `check` gets the number of entries so far and ends the
    walk by its exception.

    Raises:
        LayerTooLarge: deeper directories than MAX_DEPTH.
        OSError: the top cannot be read.
    """
    walking = _Walk(view, visitor, check)
    with closing(os.open(".", READ_DIRECTORY, dir_fd=view.top)) as top, _open_in_each(lowers, ".") as below:
        walking.directory(top, below, ())


_Identity = tuple[int, int, int]
"""Mode, size and time of a file."""


class _Walk:
    def __init__(self, view: MountedView, visitor: LayerVisitor, check: Callable[[int], None]) -> None:
        self._view = view
        self._visitor = visitor
        self._check = check
        self._entries = 0

    def directory(self, source: int, lowers: Sequence[int], parents: tuple[str, ...]) -> None:
        if len(parents) > MAX_DEPTH:
            raise LayerTooLarge(f"the changed files of the pod lie more than {MAX_DEPTH} directories deep")
        # One entry at a time: the names of all files that a pod may leave exceed the memory of this process.
        with os.scandir(source) as entries:
            for entry in entries:
                self._entries += 1
                self._check(self._entries)
                if parents:
                    self._entry(source, entry.name, lowers, parents)
                elif not self._view.is_own(entry.name):
                    self._entry(self._view.holder(entry.name), entry.name, lowers, parents)

    def _entry(self, source: int, name: str, lowers: Sequence[int], parents: tuple[str, ...]) -> None:
        if not name.isprintable() or name.startswith(_WHITEOUT):
            self._visitor.skipped()
            return
        below: Sequence[_Identity] = ()
        opened = None
        try:
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            is_file = stat.S_ISREG(status.st_mode)
            if is_file:
                below = [found for found in (_identity_in(lower, name) for lower in lowers) if found is not None]
            elif stat.S_ISDIR(status.st_mode):
                opened = os.open(name, READ_DIRECTORY, dir_fd=source)
        except OSError:  # changed by a process that still has the mount
            is_file = False
        if is_file:
            file = LayerFile(source, parents, name, shadows=bool(below))
            (self._visitor.unchanged if _identity(status) in below else self._visitor.added)(file)
        elif opened is None:
            self._visitor.skipped()
        else:
            with closing(opened), _open_in_each(lowers, name) as deeper:
                self.directory(opened, deeper, (*parents, name))


@contextmanager
def _open_in_each(lowers: Sequence[int], name: str) -> Iterator[Sequence[int]]:
    """Hold the directory `name` of each of `lowers` that has it."""
    with ExitStack() as stack:
        found = []
        for lower in lowers:
            with suppress(OSError):
                found.append(stack.enter_context(closing(os.open(name, READ_DIRECTORY, dir_fd=lower))))
        yield found


def _identity_in(lower: int, name: str) -> _Identity | None:
    try:
        return _identity(os.stat(name, dir_fd=lower, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_mode, status.st_size, status.st_mtime_ns
