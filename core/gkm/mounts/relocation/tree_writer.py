"""Walk the content of a cache and write the tree on top of it: rewritten files, and directories to write in.

The content comes from an image. Its directories are opened one name at a time beneath a descriptor and never through a
link, and everything is bounded. Extraction has refused links and larger trees before, but this process does not depend
on the checks of another one.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from resource import getpagesize
from typing import Final

from gkm.hoststate.files import CREATE_FILE, READ_DIRECTORY, READ_FILE, closing
from gkm.mounts.relocation import triton, vllm
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.rewrite_result import RewriteResult, encoded_length
from gkm.runtimes.triton import GROUP
from gkm.runtimes.vllm import INDEX

_FILE_MODE: Final = 0o444
_DIRECTORY_MODE: Final = 0o755
"""Mode of directories: a pod that is not root must be able to enter."""
_WRITABLE_MODE: Final = 0o777
"""Mode of directories in a private volume: a pod that is not root must be able to write."""
MAX_ENTRIES: Final = 1_000_000
"""Limit of files and directories, equal to the limit of extraction."""
MAX_DEPTH: Final = 16
MAX_PATH_BYTES: Final = 1024
MAX_REWRITTEN: Final = 100_000
MAX_REWRITTEN_BYTES: Final = 256 << 20
"""Limit of bytes of all rewritten files: a mount path can make a file 200 times as large. 33,000 kernels of six files
take 220 MiB at a path of 1,024 bytes."""
MAX_DIRECTORIES: Final = 100_000
"""Limit of directories in a private volume's tree: each takes an inode and a disk block."""
MAX_SIBLINGS: Final = 10_000
"""Limit of names beside files with paths; they are held in memory."""
_INODE_BYTES: Final = 1024
"""A tmpfs takes kernel memory for each inode and its name, and a page (64 KiB on some arm64 kernels) for each piece of
a file."""


class TreeTooLarge(Exception):
    """The relocated tree would take more memory than allowed."""


class Unrelocatable(Exception):
    """The content is not a valid store entry, so it cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class RewriteCounts:
    """How many files of a cache were rewritten, and how many of them name missing files.

    `memory_bytes` is the memory that the tree takes on a tmpfs.
    """

    rewritten: int
    incomplete: int
    memory_bytes: int = field(default=0, compare=False)


def write(
    content: int,
    destination: Path,
    mount_path: MountPath | None,
    *,
    is_writable: bool = False,
    max_memory_bytes: int | None = None,
) -> RewriteCounts:
    """Write the files of `content` (a descriptor) that contain paths, for `mount_path`, into the new `destination`.

    The same content and path give the same bytes. Every such file has a counterpart, so that no original shows through;
    without a path, no file has one. With `is_writable` every directory has a counterpart too, in which every user may
    write.

    Raises:
        Unrelocatable: the content holds links or special files, or is larger than any cache.
        TreeTooLarge: the tree would take more than `max_memory_bytes` on a tmpfs.
        OSError: it cannot be read, or `destination` cannot be written.
    """
    walk = _Walk(destination, mount_path, is_writable=is_writable, max_memory_bytes=max_memory_bytes)
    walk.make_directory("")
    with closing(os.open(".", READ_DIRECTORY, dir_fd=content)) as top:
        walk.directory(top, "")
    return RewriteCounts(walk.rewritten, walk.incomplete, walk.memory_bytes)


@dataclass(slots=True)
class _Listing:
    """The names in one directory: `path_files` are the files that contain paths, and are in no other set.

    The other sets hold MAX_SIBLINGS names at most; `is_truncated` tells that there are more.
    """

    path_files: list[str] = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    is_truncated: bool = False

    def add(self, names: set[str], name: str) -> None:
        if len(names) < MAX_SIBLINGS:
            names.add(name)
        else:
            self.is_truncated = True


class _Walk:
    def __init__(
        self, destination: Path, mount_path: MountPath | None, *, is_writable: bool, max_memory_bytes: int | None
    ) -> None:
        self.rewritten = 0
        self.incomplete = 0
        self.memory_bytes = 0
        self._bytes = 0
        self._max_memory_bytes = max_memory_bytes
        self._entries = 0
        self._directories = 0
        self._destination = destination
        self._mount_path = mount_path
        self._is_writable = is_writable

    def make_directory(self, relative: str) -> str:
        """Return the counterpart of a directory, making it where it is missing."""
        mode = _WRITABLE_MODE if self._is_writable else _DIRECTORY_MODE
        made = _make_directory(self._destination, relative, mode)
        self._count_memory(made * _INODE_BYTES)
        return f"{self._destination}/{relative}"

    def directory(self, descriptor: int, relative: str) -> None:
        """Rewrite the files beneath one directory, then its own; `relative` is its path, "" for the top."""
        if self._is_writable:
            self._directories += 1
            if self._directories > MAX_DIRECTORIES:
                raise Unrelocatable(f"the cache holds more than {MAX_DIRECTORIES} directories")
            self.make_directory(relative)
        listing = self._listed(descriptor, relative)
        if listing.path_files and self._mount_path is not None:
            if listing.is_truncated:
                raise Unrelocatable(
                    f"more than {MAX_SIBLINGS} files are beside {_quoted(_joined(relative, listing.path_files[0]))}"
                )
            self._rewrite(descriptor, relative, listing, self._mount_path)

    def _listed(self, descriptor: int, relative: str) -> _Listing:
        """Return the names in a directory; subdirectories are processed on the way, since they may be a million."""
        listing = _Listing()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                path = self._counted(relative, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_directory and not entry.is_file(follow_symlinks=False):
                    raise Unrelocatable(f"{_quoted(path)} is no file and no directory")
                if self._mount_path is not None and (entry.name == INDEX or entry.name.startswith(GROUP)):
                    listing.path_files.append(entry.name)  # a directory of such a name is hidden by a file, not entered
                    self.rewritten += 1
                    if self.rewritten > MAX_REWRITTEN:
                        raise Unrelocatable(f"more than {MAX_REWRITTEN} files of the cache contain paths")
                elif is_directory:
                    listing.add(listing.directories, entry.name)
                    with closing(os.open(entry.name, READ_DIRECTORY, dir_fd=descriptor)) as below:
                        self.directory(below, path)
                else:
                    listing.add(listing.files, entry.name)
        return listing

    def _counted(self, relative: str, name: str) -> str:
        """Count an entry and return its path."""
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise Unrelocatable(f"the cache holds more than {MAX_ENTRIES} files and directories")
        path = _joined(relative, name)
        if path.count("/") >= MAX_DEPTH or encoded_length(path) > MAX_PATH_BYTES:
            raise Unrelocatable(f"{_quoted(path)} is too deep")
        return path

    def _count_memory(self, size: int) -> None:
        """Count what a file or directory takes."""
        self.memory_bytes += size
        if self._max_memory_bytes is not None and self.memory_bytes > self._max_memory_bytes:
            raise TreeTooLarge(
                f"the tree takes more than {self._max_memory_bytes} bytes of memory, so the disk holds it instead"
            )

    def _rewrite(self, descriptor: int, relative: str, listing: _Listing, mount_path: MountPath) -> None:
        target_directory = self.make_directory(relative)
        inside = _joined(mount_path.text, relative) if relative else mount_path.text
        for name in listing.path_files:
            result = _rewritten(descriptor, name, inside, listing)
            self.incomplete += not result.complete
            self._bytes += len(result.data)
            if self._bytes > MAX_REWRITTEN_BYTES:
                raise Unrelocatable(f"the files that contain paths have more than {MAX_REWRITTEN_BYTES} bytes there")
            self._count_memory(_INODE_BYTES + -(-len(result.data) // getpagesize()) * getpagesize())
            _write(f"{target_directory}/{name}", result.data)


def _rewritten(descriptor: int, name: str, inside: str, listing: _Listing) -> RewriteResult:
    if name == INDEX:
        data = _read(descriptor, name, vllm.MAX_BYTES)
        return vllm.rewritten(data, inside, listing.files.union(listing.directories))
    data = _read(descriptor, name, triton.MAX_BYTES)
    return triton.rewritten(data, inside, listing.files)


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _quoted(path: str) -> str:
    return ascii(path[:80])


def _make_directory(top: Path, relative: str, mode: int) -> int:
    """Create the directory `relative` below `top` with missing parents; return how many directories were created.

    Mostly only the last name is missing, so it is tried first.

    Raises:
        OSError: a disk operation failed.
    """
    parents = 0
    directory = f"{top}/{relative}" if relative else str(top)
    try:
        os.mkdir(directory)  # noqa: PTH102 -- a Path for each of thousands costs as much as the call
    except FileExistsError:
        return 0
    except FileNotFoundError:
        if not relative:
            raise
        parents = _make_directory(top, os.path.dirname(relative), mode)  # noqa: PTH120 -- as above
        os.mkdir(directory)  # noqa: PTH102 -- as above
    os.chmod(directory, mode)  # noqa: PTH101 -- independent of the umask; as above
    return parents + 1


def _read(directory: int, name: str, limit: int) -> bytes:
    """Return at most `limit` + 1 bytes of a file in `directory`, a descriptor.

    The content of a directory is empty: the rewritten file hides it.

    Raises:
        OSError: ELOOP for a link, or it cannot be read.
    """
    # Without file objects, which cost as much as the calls.
    with closing(os.open(name, READ_FILE, dir_fd=directory)) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.read(descriptor, min(found.st_size, limit) + 1)


def _write(path: str, data: bytes) -> None:
    """Write a new file that every user may read; `path` must not exist.

    Raises:
        OSError: the file exists already, or a disk operation failed.
    """
    with closing(os.open(path, CREATE_FILE, _FILE_MODE)) as descriptor:
        os.fchmod(descriptor, _FILE_MODE)
        while data:
            data = data[os.write(descriptor, data) :]
