"""Extract the tar stream of an image to a directory: check names first, keep bounds, hash each file as it is written.

Several threads work at once: one decompresses, one reads the archive, and the threads of FileWriter write and hash. The
list has the files in the order of the archive. A file that is whole in memory waits in a batch: a handover between
threads costs as much as hashing 30 kB, and most files are smaller. A larger file is written in groups of pieces, while
another thread hashes the group, in order.

Bounds of bytes and entries do not bound the cost of a byte, so the time of an extraction has one too. Compressed data
can consist of a million pieces that yield one byte each: we measured half a megabyte a second, which is 40 hours for
the largest image. So the output must have a minimum rate, far below the rate of a slow disk.
"""

import hashlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import CREATE_FILE
from gkm.images.archives.archive import ByteStream, TarMember, joined, members
from gkm.images.archives.compression import inflated
from gkm.images.archives.member_names import checked_path
from gkm.images.archives.prefetch import prefetched
from gkm.images.cache import Format
from gkm.images.local_image import write_all
from gkm.images.pulling.disk_reservations import BLOCK_BYTES, disk_bytes
from gkm.images.pulling.file_list import ListedFile, SpooledFileList
from gkm.runtimes.placement import directory_of

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
"""Limit of the total length of all paths in bytes; each is a line of the file list."""
MAX_MANIFEST_BYTES = 16 << 20


if TYPE_CHECKING:
    from hashlib import _Hash


WRITERS = 2
"""Number of writer threads. Two are as fast as one thread that decompresses."""
BATCH_BYTES = 1 << 20
MAX_BATCH = 256
MAX_WAITING = WRITERS + 2
"""Limit of batches that wait for or are in a thread; each keeps at most twice BATCH_BYTES in memory."""
FILE_MODE, EXECUTABLE_MODE = 0o444, 0o555
GRACE_SECONDS = 120.0
MIN_BYTES_PER_SECOND = 4 << 20
"""The slowest accepted rate of uncompressed bytes. A slow disk writes five times as fast."""
SECONDS_PER_FILE = 0.02
"""Seconds that each file may take. A slow disk creates hundreds of files a second."""


class NewFile(NamedTuple):
    """A file of an image to write, whole in memory."""

    path: str
    content: memoryview
    executable: bool


@dataclass(slots=True)
class FileWriter:
    """Writes new files of an image below `destination` in threads; `append` is called with each file, in order."""

    destination: str
    append: Callable[[ListedFile], object]
    _pool: ThreadPoolExecutor
    _batch: list[NewFile] = field(default_factory=list)
    _alive: int = 0
    """The bytes that the batch keeps in memory."""
    _last: object = None
    _waiting: deque[Future[list[ListedFile]]] = field(default_factory=deque)
    _as_created: set[int] = field(default_factory=set)
    """The file modes that the process's umask and ACLs leave unchanged at creation."""
    _ended: bool = False
    """Whether an exception has ended the writer, so that waiting batches are dropped."""

    @classmethod
    @contextmanager
    def open(cls, destination: str, append: Callable[[ListedFile], object]) -> Iterator["FileWriter"]:
        """Yield a writer. When the block ends, all files are written and listed.

        After an exception the rest is dropped.

        Raises:
            GKMError: UNSAFE_CONTENT for a name that exists.
            OSError: a disk operation failed.
        """
        with ThreadPoolExecutor(WRITERS, "gkm-write") as pool:
            writer = cls(destination, append, pool)
            try:
                yield writer
                writer.flush()
            except BaseException:
                writer._ended = True
                raise

    def add(self, file: NewFile) -> None:
        """Queue a file for writing; raises the errors of earlier files, as `open` does."""
        piece = file.content.obj
        if piece is not self._last:
            self._last = piece
            self._alive += len(piece)  # type: ignore[arg-type]  # bytes, here
        self._batch.append(file)
        if self._alive > BATCH_BYTES or len(self._batch) >= MAX_BATCH:
            self._submit()

    def stream(self, path: str, pieces: Iterable[memoryview], *, executable: bool) -> None:
        """Write a large file now, after all queued files; raises as `open` does."""
        self.flush()
        hasher, size = hashlib.sha256(), 0
        descriptor = self._create(path, EXECUTABLE_MODE if executable else FILE_MODE)
        try:
            hashed = self._pool.submit(_update, hasher, [])
            for group in _groups(pieces):
                hashed.result()
                hashed = self._pool.submit(_update, hasher, group)
                for piece in group:
                    write_all(descriptor, piece)
                    size += len(piece)
            hashed.result()
        finally:
            os.close(descriptor)
        self.append(ListedFile(path, size, hasher.hexdigest(), executable))

    def flush(self) -> None:
        """Wait until all files are written and listed; raises as `open` does."""
        self._submit()
        while self._waiting:
            self._list_next()

    def _submit(self) -> None:
        batch, self._batch, self._alive, self._last = self._batch, [], 0, None
        self._waiting.append(self._pool.submit(self._write, batch))
        if len(self._waiting) > MAX_WAITING:
            self._list_next()

    def _list_next(self) -> None:
        for file in self._waiting.popleft().result():
            self.append(file)

    def _write(self, batch: list[NewFile]) -> list[ListedFile]:
        listed = []
        for path, content, executable in batch:
            if self._ended:
                break
            descriptor = self._create(path, EXECUTABLE_MODE if executable else FILE_MODE)
            try:
                write_all(descriptor, content)
            finally:
                os.close(descriptor)
            listed.append(ListedFile(path, len(content), hashlib.sha256(content).hexdigest(), executable))
        return listed

    def _create(self, path: str, mode: int) -> int:
        try:
            descriptor = os.open(f"{self.destination}/{path}", CREATE_FILE, mode)
        except FileExistsError as error:
            raise conflict(path) from error
        if mode not in self._as_created:
            try:
                self._set_mode(descriptor, mode)
            except OSError:
                os.close(descriptor)
                raise
        return descriptor

    def _set_mode(self, descriptor: int, mode: int) -> None:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) == mode:
            self._as_created.add(mode)
        else:
            os.fchmod(descriptor, mode)


@dataclass(slots=True)
class Extraction:
    """An extraction of an image's layers into an empty directory that no other process uses.

    The one cache of `formats` goes into the directory itself, several go where `gkm.runtimes.placement` has them.
    `claimed_bytes` is the size that the image claims; None without a claim. `reserve` is called with bytes of content
    and of disk before they are written; an exception from it ends the extraction.
    """

    destination: Path
    formats: Sequence[Format]
    max_bytes: int
    claimed_bytes: int | None = None
    reserve: Callable[[int, int], object] = lambda _content, _disk: None
    files: SpooledFileList = field(init=False)
    manifests: dict[str, bytes] = field(default_factory=dict)
    """The cache manifests, by their paths in the image."""
    size_bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    _unpacked: int = 0
    _members: int = 0
    _prefixes: dict[str, str] = field(init=False)
    """The prefix of paths in the destination, by the directory in the image."""
    _directories: int = 0
    _current: str = ""
    """The directory of the last member."""
    _names: int = 0
    _path_bytes: int = 0

    def __post_init__(self) -> None:
        """Open the file list beside the directory."""
        self.files = SpooledFileList(self.destination.parent)
        names = [kind.value for kind in self.formats]
        places = {kind.content_directory: directory_of(kind.value, names) for kind in self.formats}
        self._prefixes = {directory: f"{place}/" if place else "" for directory, place in places.items()}

    @property
    def manifest(self) -> bytes:
        """Return the manifest of the cache; for several caches, their manifests one after the other."""
        return b"\n".join(self.manifests.values())

    def layer(self, parts: Iterable[bytes]) -> None:
        """Extract one layer of the image. Members outside the cache's directory are checked and skipped.

        Raises:
            GKMError: UNSAFE_CONTENT, TOO_LARGE, CONTENT_MISMATCH; NODE_ERROR when it takes too long.
            OSError: a disk operation failed.
        """
        with (
            prefetched(inflated(self._in_time(parts))) as chunks,
            FileWriter.open(str(self.destination), self.files.append) as writer,
        ):
            self._read(chunks, writer)

    def _read(self, chunks: Iterable[bytes], writer: FileWriter) -> None:
        manifest_paths = {kind.manifest_path for kind in self.formats}
        manifests: dict[str, bytes] = {}
        for member, content in members(ByteStream(self._bounded(chunks))):
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise GKMError(Reason.TOO_LARGE, f"the image has more than {MAX_MEMBERS} entries in its archives")
            path = checked_path(member.name)
            if path in manifest_paths and not member.directory:
                if path in manifests:
                    raise conflict(path)
                manifests[path] = self._read_manifest(member, content)
                continue
            directory, _, inside = path.partition("/")
            prefix = self._prefixes.get(directory)
            if prefix is None:
                continue
            if not inside:
                if not member.directory:
                    raise GKMError(Reason.UNSAFE_CONTENT, f"the image holds a file where {path}/ must be")
                continue
            if member.directory:
                self._directory(f"{prefix}{inside}")
            else:
                self._file(f"{prefix}{inside}", member, content, writer)
        # A layer that adds files has the manifest of all. It replaces no file (OCI image-spec, layer.md, "Applying").
        self.manifests |= manifests

    def _in_time(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        # Checked for every compressed piece, because a piece has a bounded cost but may yield no bytes.
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

    def _read_manifest(self, member: TarMember, content: Iterator[memoryview]) -> bytes:
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
    """Check that the number of directories is plausible for the number of files so far. Pure.

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


def _groups(pieces: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """Yield the pieces in lists of the size of a batch; their number is bounded too, for pieces of one byte."""
    group: list[memoryview] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES or len(group) >= MAX_BATCH:
            yield group
            group, size = [], 0
    yield group


def _update(hasher: "_Hash", pieces: Iterable[memoryview]) -> None:
    for piece in pieces:
        hasher.update(piece)


def conflict(path: str) -> GKMError:
    """Return the error for a path that an image contains twice."""
    return GKMError(Reason.UNSAFE_CONTENT, f"the image holds {path[:80]!r} twice, or as a file and a directory")


def check_duration(started: float, size: int, files: int) -> None:
    """Check that an extraction since `started` (time.monotonic()) produced `size` bytes and `files` files in time.

    Raises:
        GKMError: NODE_ERROR, which is retried: a disk may be slow only for a while.
    """
    allowed = GRACE_SECONDS + size / MIN_BYTES_PER_SECOND + files * SECONDS_PER_FILE
    if time.monotonic() - started > allowed:
        raise GKMError(
            Reason.NODE_ERROR,
            f"unpacking takes too long: {size} bytes in {files} files after {allowed:.0f} seconds",
            "the disk is very slow, or the layers are built to take long",
        )
