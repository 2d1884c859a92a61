"""The integrity check of an entry: compares its files with its file list, by names and sizes or by every byte.

The extraction writes the list together with the content, and seals both. A later difference comes from the disk, a
crash or a root user. The check takes no lock, so a caller that acts on damage checks again under the entry's lock.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gkm.hoststate.escaping import escape
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.images.archives.member_names import MAX_DEPTH
from gkm.images.pulling import entry
from gkm.images.pulling import file_list as listing
from gkm.images.pulling.file_list import ListedFile

FILE_COST = 4096
"""The cost to open a file, in bytes read: a cache can have 200,000 small files."""
_PIECE = 256 << 10
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Throttle = Callable[[int], None]
"""Called for every piece with its cost in bytes; an exception ends the check."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file of an entry: its printable `path` within the content, or files.json, and the cause."""

    path: str
    cause: str


def printable_path(path: str) -> str:
    """Return a path with escapes for all that is not printable text.

    The names from the extraction stay unchanged. A name from a flipped bit or another writer may have any bytes.
    """
    return escape(path)


def check_sizes(layout: Layout, digest: str, throttle: Throttle | None = None) -> Damage | None:
    """Return the first difference of names and sizes from the list, None without one.

    Raises:
        FileNotFoundError: the entry no longer exists.
    """
    return _compared(layout, digest, throttle or _unthrottled, content=False)


def check_content(layout: Layout, digest: str, throttle: Throttle | None = None) -> Damage | None:
    """Return the first difference of the content from the list, None without one; raises as `check_sizes`."""
    return _compared(layout, digest, throttle or _unthrottled, content=True)


def recheck(layout: Layout, digest: str, path: str) -> Damage | None:
    """Return the current damage at a `path` from an earlier check, None if it is gone; raises as `check_sizes`."""
    if (wrong := _unlisted(layout, digest)) is not None:
        return wrong
    content = layout.entry(digest) / entry.CONTENT
    if path == entry.FILE_LIST:
        return next((wrong for file in _listed(layout, digest) if (wrong := _misnamed(file)) is not None), None)
    for file in _listed(layout, digest):
        if file.path == path:
            return _file(content, file, _unthrottled, content=True)
    stranger = next((name for name in _names(content) if printable_path(name) == path), None)
    return Damage(path, "no file of this name was extracted") if stranger is not None else None


def _compared(layout: Layout, digest: str, throttle: Throttle, *, content: bool) -> Damage | None:
    if (wrong := _unlisted(layout, digest)) is not None:
        return wrong
    root = layout.entry(digest) / entry.CONTENT
    count = 0
    for file in _listed(layout, digest):
        count += 1
        if (wrong := _file(root, file, throttle, content=content)) is not None:
            return wrong
    try:
        # The count comes first: a set of 200,000 names takes memory, and only damage needs it.
        if sum(1 for _ in _names(root)) == count:
            return None
        known = {file.path for file in _listed(layout, digest)}
        stranger = next((name for name in _names(root) if name not in known), None)
    except OSError as error:
        return Damage(
            printable_path(os.path.relpath(str(error.filename), root)), f"it is unreadable ({error.strerror})"
        )
    return Damage(printable_path(stranger), "no file of this name was extracted") if stranger is not None else None


def _unlisted(layout: Layout, digest: str) -> Damage | None:
    """Return the damage of the entry's directory and file list."""
    try:
        if entry.find(layout, digest) is None:
            raise FileNotFoundError(str(layout.entry(digest)))
    except UnreadableState as error:
        return Damage(entry.FILE_LIST, str(error))
    return None


def _file(root: Path, file: ListedFile, throttle: Throttle, *, content: bool) -> Damage | None:
    throttle(FILE_COST)
    if (wrong := _misnamed(file)) is not None:
        return wrong
    path = root / file.path
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return Damage(file.path, "it is no regular file")
        if status.st_size != file.size:
            return Damage(file.path, f"it has {status.st_size} bytes, not {file.size}")
        found = _sha256(path, throttle) if content else file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return Damage(file.path, "it is gone")
    except OSError as error:
        return Damage(file.path, f"it is unreadable ({error.strerror})")
    return None if found == file.sha256 else Damage(file.path, "its content has changed")


def _misnamed(file: ListedFile) -> Damage | None:
    if ".." in Path(file.path).parts or file.path.startswith("/") or "\0" in file.path:
        return Damage(entry.FILE_LIST, f"its list names {file.path[:80]!r}")
    return None


def _sha256(path: Path, throttle: Throttle) -> str:
    hasher = hashlib.sha256()
    with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
            throttle(len(piece))
    return hasher.hexdigest()


def _listed(layout: Layout, digest: str) -> Iterator[ListedFile]:
    """Yield the files of a valid list: one per line, after the first line."""
    with (layout.entry(digest) / entry.FILE_LIST).open("rb") as file:
        file.readline(listing.MAX_LINE_BYTES)
        while (line := file.readline(listing.MAX_LINE_BYTES)).startswith(b"{"):
            yield msgspec.json.decode(line.removesuffix(b"\n").removesuffix(b","), type=ListedFile)


def _names(root: Path) -> Iterator[str]:
    """Yield the relative path of every file below `root`, and of every directory below the deepest possible level."""
    for path in _below(str(root), MAX_DEPTH):
        yield os.path.relpath(path, root)


def _below(directory: str, levels: int) -> Iterator[str]:
    # A generator, because an image decides on the number of directories.
    with os.scandir(directory) as entries:
        for path in entries:
            if path.is_dir(follow_symlinks=False) and levels:
                yield from _below(path.path, levels - 1)
            else:
                yield path.path


def _unthrottled(cost: int) -> None:
    """Read at full speed."""
