"""Extract the tar stream of an image to a directory: check names first, keep bounds, hash each file while writing it.

Several threads work at once: one decompresses, one reads the archive, and the threads of FileWriter write and hash.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import ByteStream, TarMember, joined, members
from gkm.images.archives.inflate import inflated
from gkm.images.archives.member_names import checked_path
from gkm.images.archives.prefetch import prefetched
from gkm.images.cache import Format
from gkm.images.pulling.disk_reservations import BLOCK_BYTES, disk_bytes
from gkm.images.pulling.file_list import SpooledFileList
from gkm.images.pulling.file_writer import BATCH_BYTES, FileWriter, NewFile, conflict
from gkm.images.pulling.time_budget import check_duration

MAX_FILES = 200_000
"""A real cache of 1 GB has 15,000. Each file costs extraction time, a line of the file list, and an inode on every
node."""
MAX_DIRECTORIES = 50_000
"""Included in MAX_FILES. The largest real cache has kernels of six files each in 33,000 directories; a directory costs
more time and inodes than an empty file.
"""
SPARE_DIRECTORIES = 10_000
"""The directories beyond the number of files so far; archives may list directories first. A real 1 GB cache has
2,000."""
MAX_MEMBERS = 2 * MAX_FILES
"""Members of all layers, including those outside the cache and repeated directories, because each costs time."""
OVERHEAD_BYTES = 512 << 20
"""The decompressed headers and padding of MAX_FILES members, in addition to the cache itself."""
MAX_PATHS_BYTES = 32 << 20
"""The bound of all paths together; each is a line of the file list."""
MAX_MANIFEST_BYTES = 16 << 20


@dataclass(slots=True)
class Extraction:
    """An extraction into an empty directory that no other process uses.

    `claimed_bytes` is the size that the image claims; None if it claims none. `reserve` is called with bytes of content
    and of disk before they are written; an exception from it ends the extraction.
    """

    destination: Path
    format: Format
    max_bytes: int
    claimed_bytes: int | None = None
    reserve: Callable[[int, int], object] = lambda _content, _disk: None
    files: SpooledFileList = field(init=False)
    manifest: bytes = b""
    size_bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    _unpacked: int = 0
    _members: int = 0
    _has_manifest: bool = False
    _directories: int = 0
    _current: str = ""
    """The directory of the last member."""
    _names: int = 0
    _path_bytes: int = 0

    def __post_init__(self) -> None:
        """Open the file list beside the directory."""
        self.files = SpooledFileList(self.destination.parent)

    def layer(self, parts: Iterable[bytes]) -> None:
        """Extract one layer. Members outside the cache's directory are checked and skipped.

        Raises:
            GKMError: UNSAFE_CONTENT, TOO_LARGE, CONTENT_MISMATCH; NODE_ERROR when it takes too long.
            OSError: the disk refused.
        """
        with (
            prefetched(inflated(self._in_time(parts))) as chunks,
            FileWriter.open(str(self.destination), self.files.append) as writer,
        ):
            self._read(chunks, writer)

    def _read(self, chunks: Iterable[bytes], writer: FileWriter) -> None:
        for member, content in members(ByteStream(self._bounded(chunks))):
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise GKMError(Reason.TOO_LARGE, f"the image has more than {MAX_MEMBERS} entries in its archives")
            path = checked_path(member.name)
            if path == self.format.manifest_path and not member.directory:
                self.manifest = self._read_manifest(path, member, content)
                continue
            directory, _, inside = path.partition("/")
            if directory != self.format.content_directory:
                continue
            if not inside:
                if not member.directory:
                    raise GKMError(Reason.UNSAFE_CONTENT, f"the image holds a file where {path}/ must be")
                continue
            if member.directory:
                self._directory(inside)
            else:
                self._file(inside, member, content, writer)

    def _in_time(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        # Checked for every compressed piece, because a piece has a bounded cost but may yield nothing.
        for part in parts:
            check_duration(self.started, self._unpacked, self._names)
            yield part

    def _bounded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._unpacked += len(chunk)
            if self._unpacked > self.max_bytes + OVERHEAD_BYTES:
                raise GKMError(
                    Reason.TOO_LARGE, f"the image unpacks to more than {self.max_bytes + OVERHEAD_BYTES} bytes"
                )
            yield chunk

    def _read_manifest(self, path: str, member: TarMember, content: Iterator[memoryview]) -> bytes:
        if self._has_manifest:
            raise conflict(path)
        self._has_manifest = True
        if member.size > MAX_MANIFEST_BYTES:
            raise GKMError(Reason.TOO_LARGE, f"the cache manifest in the image has {member.size} bytes")
        return bytes(joined(content))

    def _directory(self, path: str) -> None:
        # The file system remembers the names; no other process writes there.
        if path == self._current or self._is_made(path):
            self._current = path
            return
        parent, _, _ = path.rpartition("/")
        if parent:
            self._directory(parent)
        self._count(path)
        self._directories += 1
        check_directories(self._directories, self._names - self._directories)
        self.reserve(0, BLOCK_BYTES)
        try:
            os.mkdir(f"{self.destination}/{path}")  # noqa: PTH102 -- one of thousands: no path object for each
        except FileExistsError as error:
            # A writing thread has made a file of this name since `_is_made`.
            raise conflict(path) from error
        self._current = path

    def _is_made(self, path: str) -> bool:
        try:
            found = os.lstat(f"{self.destination}/{path}")
        except FileNotFoundError:
            return False
        except NotADirectoryError as error:
            raise conflict(path) from error
        if not stat.S_ISDIR(found.st_mode):
            raise conflict(path)
        return True

    def _file(self, path: str, member: TarMember, content: Iterator[memoryview], writer: FileWriter) -> None:
        parent, _, _ = path.rpartition("/")
        if parent:
            self._directory(parent)
        self._count(path)
        self._count_bytes(member.size)
        if member.size > BATCH_BYTES:
            self.reserve(0, disk_bytes(member.size) - member.size)
            writer.stream(path, self._reserved(content), executable=member.executable)
            return
        whole = joined(content)
        self.reserve(member.size, disk_bytes(member.size))
        writer.add(NewFile(path, whole, member.executable))

    def _reserved(self, content: Iterable[memoryview]) -> Iterator[memoryview]:
        for piece in content:
            self.reserve(len(piece), len(piece))
            yield piece

    def _count(self, path: str) -> None:
        self._names += 1
        self._path_bytes += len(path)
        if self._names > MAX_FILES:
            raise GKMError(Reason.TOO_LARGE, f"the cache has more than {MAX_FILES} files and directories")
        if self._path_bytes > MAX_PATHS_BYTES:
            raise GKMError(Reason.TOO_LARGE, f"the paths in the cache are longer than {MAX_PATHS_BYTES} bytes together")

    def _count_bytes(self, size: int) -> None:
        """Count a file before its first byte is written: the reservation covers the claimed size only."""
        self.size_bytes += size
        if self.size_bytes > self.max_bytes:
            raise GKMError(Reason.TOO_LARGE, f"the cache is larger than the {self.max_bytes} bytes that are allowed")
        if self.claimed_bytes is not None and self.size_bytes > self.claimed_bytes:
            raise GKMError(
                Reason.CONTENT_MISMATCH,
                f"the image claims a cache of {self.claimed_bytes} bytes, it has at least {self.size_bytes}",
            )


def check_directories(directories: int, files: int) -> None:
    """Check the number of directories against the number of files so far. Pure.

    Raises:
        GKMError: TOO_LARGE: more directories than the files need.
    """
    if directories > min(MAX_DIRECTORIES, files + SPARE_DIRECTORIES):
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache has {directories} directories for {files} files: at most {MAX_DIRECTORIES} are allowed, and "
            f"{SPARE_DIRECTORIES} more than files",
            "remove empty directories",
        )
