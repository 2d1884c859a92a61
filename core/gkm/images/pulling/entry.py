"""The entries of the store: find, seal and publish them."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.trees import remove as remove_tree
from gkm.images.pulling import file_list
from gkm.images.pulling.file_list import FileList, ListedFile

__all__ = ("FileList", "ListedFile", "StoreEntry", "exists", "find", "publish", "remove_tree", "seal")

CONTENT = "cache"
"""The directory of an entry that pods mount."""
FILE_LIST = "files.json"
MANIFEST = "manifest.json"
_SEALED_DIRECTORY = 0o555
_SEALED_FILE = 0o444
_OPEN_DIRECTORY = 0o755
READS = 3
"""How often `find` reads an entry without its list again: another process may be publishing or removing it."""


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A complete store entry: the number of its files, and their total size in bytes."""

    digest: str
    path: Path
    size_bytes: int
    files: int


def find(layout: Layout, digest: str) -> StoreEntry | None:
    """Return the entry of a digest; None if the store lacks it.

    Raises:
        UnreadableState: the entry is damaged or has another digest: another program changed the store.
    """
    path = layout.entry(digest)
    if (found := _listed(path)) is None:
        return None
    listed, count = found
    if listed.digest != digest:
        raise UnreadableState(f"{path / FILE_LIST}: it lists the files of another entry")
    if not exists(layout, digest):
        raise UnreadableState(f"{path}: the entry has no {CONTENT}/")
    return StoreEntry(digest, path, listed.size_bytes, count)


def _listed(path: Path) -> tuple[FileList, int] | None:
    """Return the file list of an entry, and how many files it has; None without an entry.

    Another program may publish or remove the entry between two reads, each by one rename of the whole.
    """
    for _ in range(READS):
        with suppress(FileNotFoundError):
            return file_list.read(path / FILE_LIST)
        if not os.path.lexists(path):
            return None
    raise UnreadableState(f"{path}: the entry has no {FILE_LIST}")


def exists(layout: Layout, digest: str) -> bool:
    """Return whether the store has the content directory of an entry, and it can be looked at; reads no file list."""
    # The agent calls this for hundreds of caches in each reconcile: one system call and no extra path objects.
    try:
        return stat.S_ISDIR(os.lstat(f"{layout.entry(digest)}/{CONTENT}").st_mode)
    except OSError:
        return False


def publish(layout: Layout, work: Path, listed: FileList, manifest: bytes) -> StoreEntry:
    """Seal `work`, which holds CONTENT, and rename it to the entry of `listed.digest`.

    Raises:
        OSError: a disk operation failed.
    """
    (work / MANIFEST).write_bytes(manifest)
    file_list.write(work / FILE_LIST, listed)
    for name in (MANIFEST, FILE_LIST):
        (work / name).chmod(_SEALED_FILE)
    seal(str(work / CONTENT))
    # The entry's own directory stays writable for its owner: renaming a directory needs write permission on it unless
    # the agent has a capability that overrides it, and pods see only CONTENT. Setting every mode makes the umask
    # irrelevant.
    work.chmod(_OPEN_DIRECTORY)
    files.sync_file_system(work)
    path = layout.entry(listed.digest)
    try:
        work.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove_tree(work)  # another pull published the same content first
    files.sync_directory(path.parent)
    return StoreEntry(listed.digest, path, listed.size_bytes, len(listed.files))


def seal(directory: str) -> None:
    """Remove the write permission of directories; their files have no such permission."""
    # scandir, because os.walk reads all names of a directory at once and an image decides their number.
    with os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                seal(one.path)
    os.chmod(directory, _SEALED_DIRECTORY)  # noqa: PTH101 -- one of thousands: no path object for each
