"""An entry of the store: what it holds, how it is found, sealed, published and taken apart."""

import ctypes
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import files, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.images.pulling import file_list as listing
from gkm.images.pulling.file_list import FileList, ListedFile

__all__ = ("FileList", "ListedFile", "StoreEntry", "exists", "find", "publish", "remove_tree")

CONTENT = "cache"
"""Directory of an entry that pods see."""
FILE_LIST = "files.json"
MANIFEST = "manifest.json"
_SEALED_DIRECTORY = 0o555
_SEALED_FILE = 0o444
_OPEN_DIRECTORY = 0o755


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A complete entry: `size_bytes` in so many `files`."""

    digest: str
    path: Path
    size_bytes: int
    files: int


def find(layout: Layout, digest: str) -> StoreEntry | None:
    """Return the entry of a digest, None where the store has none.

    Raises:
        UnreadableState: something is there that is no entry of this digest: somebody changed the store.
    """
    path = layout.entry(digest)
    try:
        listed, count = listing.read(path / FILE_LIST)
    except FileNotFoundError as error:
        if os.path.lexists(path):
            raise UnreadableState(f"{path}: an entry without {FILE_LIST}") from error
        return None
    if listed.digest != digest:
        raise UnreadableState(f"{path / FILE_LIST}: it is the list of another entry")
    if not exists(layout, digest):
        raise UnreadableState(f"{path}: an entry without {CONTENT}/")
    return StoreEntry(digest, path, listed.size_bytes, count)


def exists(layout: Layout, digest: str) -> bool:
    """Return whether the store has what pods see of an entry; its list is not looked at."""
    # The agent asks for each of hundreds of caches in every turn: one call, and no path object that it does not need.
    try:
        return stat.S_ISDIR(os.lstat(f"{layout.entry(digest)}/{CONTENT}").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def publish(layout: Layout, work: Path, listed: FileList, manifest: bytes) -> StoreEntry:
    """Turn `work`, which holds CONTENT, into the entry of `listed.digest` by one rename.

    Raises:
        OSError: the disk refused.
    """
    (work / MANIFEST).write_bytes(manifest)
    listing.write(work / FILE_LIST, listed)
    for name in (MANIFEST, FILE_LIST):
        (work / name).chmod(_SEALED_FILE)
    _seal(str(work / CONTENT))
    # The entry's own directory stays writable for its owner: a directory without write bits cannot be renamed by an
    # agent that has no capability to override them, and pods see only what is below CONTENT. All modes are set, so
    # that neither the umask nor how `work` was made shows.
    work.chmod(_OPEN_DIRECTORY)
    _sync_file_system(work)
    path = layout.entry(listed.digest)
    try:
        work.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove_tree(work)  # somebody was faster with the same content
    files.sync_directory(path.parent)
    return StoreEntry(listed.digest, path, listed.size_bytes, len(listed.files))


def remove_tree(path: Path) -> None:
    """Remove a directory of ours, sealed or not, or what somebody put in its place; idempotent.

    Raises:
        OSError: something cannot be removed.
    """
    trees.remove(path)


def _seal(directory: str) -> None:
    """Take the write bits of directories; files were made without."""
    # By scandir: os.walk reads all names of a directory at once, and an image decides how many there are.
    with os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                _seal(one.path)
    os.chmod(directory, _SEALED_DIRECTORY)  # noqa: PTH101 -- one of thousands: no path object for each


def _sync_file_system(path: Path) -> None:
    """Make everything below `path` durable at once: syncfs(2), where thousands of fsyncs would take minutes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)
