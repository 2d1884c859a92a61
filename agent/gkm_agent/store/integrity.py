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
from gkm.hoststate.files import PASSING, READ_FILE, UnreadableState
from gkm.hoststate.layout import Layout
from gkm.images.archives.member_names import MAX_DEPTH
from gkm.images.pulling import entry
from gkm.images.pulling.file_list import MAX_LINE_BYTES, ListedFile

FILE_COST = 4096
"""The cost of opening a file, in bytes read: a cache can have 200,000 small files."""
_PIECE = 256 << 10
_UNKNOWN = "no file of this name was extracted"

Throttle = Callable[[int], None]
"""A callback that gets the cost of each read piece in bytes and may sleep; an exception from it ends the check."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file of an entry: its `path` within the content, or files.json, and the cause.

    The path has escapes for all that is not printable text. The names from the extraction stay unchanged. A name from a
    flipped bit or another writer may have any bytes.
    """

    path: str
    cause: str


def check(
    layout: Layout, digest: str, throttle: Throttle = lambda _cost: None, *, content: bool = True
) -> Damage | None:
    """Return the first difference between an entry and its file list, None if equal.

    With `content` it compares every byte, otherwise names and sizes.

    Raises:
        FileNotFoundError: the entry no longer exists.
    """
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
        if sum(1 for _ in _names(str(root))) == count:
            return None
        known = {file.path for file in _listed(layout, digest)}
        unknown = next((name for name in _names(str(root)) if name not in known), None)
    except OSError as error:
        return _unlistable(root, error)
    return Damage(escape(unknown), _UNKNOWN) if unknown is not None else None


def recheck(layout: Layout, digest: str, path: str) -> Damage | None:
    """Check again a `path` that an earlier check found damaged; return its damage, None if it is sound.

    Raises as `check`.
    """
    if (wrong := _unlisted(layout, digest)) is not None:
        return wrong
    content = layout.entry(digest) / entry.CONTENT
    if path == entry.FILE_LIST:
        return next((wrong for file in _listed(layout, digest) if (wrong := _misnamed(file)) is not None), None)
    for file in _listed(layout, digest):
        if file.path == path:
            return _file(content, file, lambda _cost: None, content=True)
    try:
        return Damage(path, _UNKNOWN) if any(escape(name) == path for name in _names(str(content))) else None
    except OSError as error:
        return _unlistable(content, error)


def _unlisted(layout: Layout, digest: str) -> Damage | None:
    """Return the damage of the entry's directory and file list."""
    try:
        if entry.find(layout, digest) is None:
            raise FileNotFoundError(str(layout.entry(digest)))
    except UnreadableState as error:
        return Damage(entry.FILE_LIST, str(error))
    return None


def _unlistable(root: Path, error: OSError) -> Damage:
    if error.errno in PASSING:
        raise error
    return Damage(escape(os.path.relpath(str(error.filename), root)), f"it is unreadable ({error.strerror})")


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
        if error.errno in PASSING:
            raise
        return Damage(file.path, f"it is unreadable ({error.strerror})")
    return None if found == file.sha256 else Damage(file.path, "its content has changed")


def _misnamed(file: ListedFile) -> Damage | None:
    if ".." in Path(file.path).parts or file.path.startswith("/") or "\0" in file.path:
        return Damage(entry.FILE_LIST, f"its list names {file.path[:80]!r}")
    return None


def _sha256(path: Path, throttle: Throttle) -> str:
    hasher = hashlib.sha256()
    with os.fdopen(os.open(path, READ_FILE), "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
            throttle(len(piece))
    return hasher.hexdigest()


def _listed(layout: Layout, digest: str) -> Iterator[ListedFile]:
    """Yield the files of a valid list: one per line, after the first line."""
    with (layout.entry(digest) / entry.FILE_LIST).open("rb") as file:
        file.readline(MAX_LINE_BYTES)
        while (line := file.readline(MAX_LINE_BYTES)).startswith(b"{"):
            yield msgspec.json.decode(line.removesuffix(b"\n").removesuffix(b","), type=ListedFile)


def _names(root: str, directory: str = "", levels: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the relative path of every file below `root`, and of every directory below the deepest possible level."""
    # A generator, because an image decides on the number of directories.
    with os.scandir(f"{root}/{directory}") as entries:
        for found in entries:
            name = f"{directory}{found.name}"
            if found.is_dir(follow_symlinks=False) and levels:
                yield from _names(root, f"{name}/", levels - 1)
            else:
                yield name
