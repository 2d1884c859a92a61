"""Whether an entry still holds what its list says: by names and sizes, or by every byte. Only reads.

The list was made while the content was extracted, and both are sealed; what differs since was changed by a disk, by a
crash, or by somebody with root. Nothing here takes a lock: whoever acts on what is found looks again under it.
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
"""What opening a file costs beside its bytes, in bytes read: a cache can have 200,000 small ones."""
_PIECE = 256 << 10
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Pay = Callable[[int], None]
"""Called for every piece with the bytes that it costs; what it raises ends the check."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with an entry: `path` within its content, or files.json, as `shown` makes it."""

    path: str
    why: str


def printable_path(path: str) -> str:
    """Return a path as any file and any terminal can hold it: what is no printable text in it is escaped.

    A name that we extracted stays as it is; one that a flipped bit or somebody else made need not be text at all.
    """
    return escape(path)


def measured(layout: Layout, digest: str, pay: Pay | None = None) -> Damage | None:
    """Return how names and sizes differ from the list, None where they do not.

    Raises:
        FileNotFoundError: there is no such entry any more.
    """
    return _compared(layout, digest, pay or _free, content=False)


def read(layout: Layout, digest: str, pay: Pay | None = None) -> Damage | None:
    """Return how the content differs from the list, None where it does not; raises as `measured`."""
    return _compared(layout, digest, pay or _free, content=True)


def still(layout: Layout, digest: str, path: str) -> Damage | None:
    """Return whether what was found wrong at `path` is wrong now; raises as `measured`."""
    if (wrong := _unlisted(layout, digest)) is not None:
        return wrong
    content = layout.entry(digest) / entry.CONTENT
    if path == entry.FILE_LIST:
        return next((wrong for file in _listed(layout, digest) if (wrong := _misnamed(file)) is not None), None)
    for file in _listed(layout, digest):
        if file.path == path:
            return _file(content, file, _free, content=True)
    stranger = next((name for name in _names(content) if printable_path(name) == path), None)
    return Damage(path, "no file of this name was extracted") if stranger is not None else None


def _compared(layout: Layout, digest: str, pay: Pay, *, content: bool) -> Damage | None:
    if (wrong := _unlisted(layout, digest)) is not None:
        return wrong
    root = layout.entry(digest) / entry.CONTENT
    count = 0
    for file in _listed(layout, digest):
        count += 1
        if (wrong := _file(root, file, pay, content=content)) is not None:
            return wrong
    try:
        # Names are counted first: to hold 200,000 of them takes memory that is needed only when something is wrong.
        if sum(1 for _ in _names(root)) == count:
            return None
        known = {file.path for file in _listed(layout, digest)}
        stranger = next((name for name in _names(root) if name not in known), None)
    except OSError as error:
        return Damage(
            printable_path(os.path.relpath(str(error.filename), root)), f"it cannot be read ({error.strerror})"
        )
    return Damage(printable_path(stranger), "no file of this name was extracted") if stranger is not None else None


def _unlisted(layout: Layout, digest: str) -> Damage | None:
    """Return what is wrong with an entry before any file of it is looked at."""
    try:
        if entry.find(layout, digest) is None:
            raise FileNotFoundError(str(layout.entry(digest)))
    except UnreadableState as error:
        return Damage(entry.FILE_LIST, str(error))
    return None


def _file(root: Path, file: ListedFile, pay: Pay, *, content: bool) -> Damage | None:
    pay(FILE_COST)
    if (wrong := _misnamed(file)) is not None:
        return wrong
    path = root / file.path
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return Damage(file.path, "it is no regular file")
        if status.st_size != file.size:
            return Damage(file.path, f"it has {status.st_size} bytes, not {file.size}")
        found = _sha256(path, pay) if content else file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return Damage(file.path, "it is gone")
    except OSError as error:
        return Damage(file.path, f"it cannot be read ({error.strerror})")
    return None if found == file.sha256 else Damage(file.path, "its content has changed")


def _misnamed(file: ListedFile) -> Damage | None:
    if ".." in Path(file.path).parts or file.path.startswith("/") or "\0" in file.path:
        return Damage(entry.FILE_LIST, f"its list names {file.path[:80]!r}")
    return None


def _sha256(path: Path, pay: Pay) -> str:
    hasher = hashlib.sha256()
    with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
            pay(len(piece))
    return hasher.hexdigest()


def _listed(layout: Layout, digest: str) -> Iterator[ListedFile]:
    """Yield the files of a list that has just been read whole without complaint: a line each, after the first."""
    with (layout.entry(digest) / entry.FILE_LIST).open("rb") as file:
        file.readline(listing.MAX_LINE_BYTES)
        while (line := file.readline(listing.MAX_LINE_BYTES)).startswith(b"{"):
            yield msgspec.json.decode(line.removesuffix(b"\n").removesuffix(b","), type=ListedFile)


def _names(root: Path) -> Iterator[str]:
    """Yield every name below `root` that is no directory, relative to it, or one deeper than any was extracted."""
    for path in _below(str(root), MAX_DEPTH):
        yield os.path.relpath(path, root)


def _below(directory: str, levels: int) -> Iterator[str]:
    # The names of directories are not held either: an image decides how many there are.
    with os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False) and levels:
                yield from _below(one.path, levels - 1)
            else:
                yield one.path


def _free(cost: int) -> None:
    """Charge nothing."""
