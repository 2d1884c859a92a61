"""Write and hash extracted files in threads, several at once; the list has them in the order of the archive.

A file that is whole in memory waits in a batch: a handover between threads costs as much as hashing 30 kB, and most
files are smaller. A larger file is written in groups of pieces, while another thread hashes the group, in order.
"""

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import write_all
from gkm.images.pulling.file_list import ListedFile

if TYPE_CHECKING:
    from hashlib import _Hash

WRITERS = 2
"""Two are as fast as one thread that decompresses; each holds the interpreter's lock for a part of its time."""
BATCH_BYTES = 1 << 20
MAX_BATCH = 256
MAX_WAITING = WRITERS + 2
"""Batches in threads or before them; each keeps at most twice BATCH_BYTES alive."""
FILE_MODE, EXECUTABLE_MODE = 0o444, 0o555
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewFile(NamedTuple):
    """A file to write, whole in memory."""

    path: str
    content: memoryview
    executable: bool


@dataclass(slots=True)
class FileWriter:
    """Writes new files into directories that exist below `destination`; calls `append` with each, in order."""

    destination: str
    append: Callable[[ListedFile], object]
    _pool: ThreadPoolExecutor
    _batch: list[NewFile] = field(default_factory=list)
    _alive: int = 0
    """The bytes that the batch keeps in memory, used by its files or not."""
    _last: object = None
    _waiting: deque[Future[list[ListedFile]]] = field(default_factory=deque)
    _as_created: set[int] = field(default_factory=set)
    """The modes that a new file has at once, because neither umask nor ACLs change them."""
    _ended: bool = False
    """Whether batches that wait are of no use any more."""

    @classmethod
    @contextmanager
    def open(cls, destination: str, append: Callable[[ListedFile], object]) -> Iterator["FileWriter"]:
        """Yield a writer. After the block every file is written and listed; an exception ends it without the rest.

        Raises:
            GKMError: UNSAFE_CONTENT for a name that exists.
            OSError: the disk refused.
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
        """Write a file later; raises as `open` does, for any earlier file."""
        piece = file.content.obj
        if piece is not self._last:
            self._last = piece
            self._alive += len(piece)  # type: ignore[arg-type]  # bytes, here
        self._batch.append(file)
        if self._alive > BATCH_BYTES or len(self._batch) >= MAX_BATCH:
            self._submit()

    def stream(self, path: str, pieces: Iterable[memoryview], *, executable: bool) -> None:
        """Write a large file now, after all earlier ones; raises as `open` does."""
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
            descriptor = os.open(f"{self.destination}/{path}", _FLAGS, mode)
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
    """Return the error for a name that an image holds twice."""
    return GKMError(Reason.UNSAFE_CONTENT, f"the image holds {path[:80]!r} twice, or as a file and a directory")
