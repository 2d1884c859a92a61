"""Blobs to the disk: several at once, each checked whole, each taken up where an earlier process left it."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

from gkm.api.errors import GKMError, Reason
from gkm.images.blobs import Arrival
from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference
from gkm.images.registry import Registry

CONNECTIONS = 3
"""At most so many blobs of an image are fetched at once: a registry serves a fleet."""
STALE_SECONDS = 24 * 3600.0
"""A part of a blob that nobody has added to for so long is not waited for any more."""
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class Meter:
    """Adds up what all connections bring, and tells the percentage for every piece. Thread-safe.

    For every piece, so that whoever is told can call the download off by raising, however slowly it comes.
    """

    tell: Callable[[int], None]
    total: int
    _done: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add(self, count: int) -> None:
        """Count bytes that have come."""
        with self._lock:
            self._done += count
            self.tell(min(100, self._done * 100 // max(1, self.total)))


@dataclass(slots=True)
class Download:
    """The blobs of one image on their way into `work`; parts of them lie in `partial` meanwhile."""

    registry: Registry
    ref: Reference
    partial: Path
    work: Path
    meter: Meter
    _stop: Event = field(default_factory=Event)

    def run(self, blobs: Sequence[Descriptor]) -> list[Path]:
        """Return the files of the blobs, in their order; every one has its size and its digest.

        What came of a blob that failed for a passing reason stays, and the next try takes it up.

        Raises:
            GKMError: what the registry raises; the first failure ends the others.
            OSError: the disk refused.
        """
        self.partial.mkdir(parents=True, exist_ok=True)
        sweep(self.partial)
        with ThreadPoolExecutor(min(CONNECTIONS, max(1, len(blobs))), "gkm-blob") as pool:
            tasks = [pool.submit(self._one, number, blob) for number, blob in enumerate(blobs)]
            try:
                return [task.result() for task in tasks]
            except BaseException:
                self._stop.set()
                for task in tasks:
                    task.cancel()
                raise

    def _one(self, number: int, blob: Descriptor) -> Path:
        target = self.work / f"layer-{number}"
        with _part(self.partial / blob.digest.removeprefix("sha256:"), target) as (path, descriptor):

            def write(part: bytes) -> None:
                if self._stop.is_set():
                    raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the download of another layer failed")
                _write(descriptor, part)
                self.meter.add(len(part))

            arrival = Arrival(blob, write)
            arrival.remember(_parts(path, blob.size))
            self.meter.add(arrival.seen)
            os.ftruncate(descriptor, arrival.seen)
            os.lseek(descriptor, arrival.seen, os.SEEK_SET)
            try:
                self.registry.blob(self.ref, arrival)
            except GKMError as error:
                if error.reason is not Reason.REGISTRY_UNAVAILABLE:
                    path.unlink()  # what came is not worth going on with
                raise
            path.rename(target)
        return target


def sweep(partial: Path, now: float | None = None) -> None:
    """Remove parts that nobody has added to for STALE_SECONDS."""
    for path in partial.iterdir():
        try:
            if (now or time.time()) - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
        except FileNotFoundError:
            continue


@contextmanager
def _part(shared: Path, private: Path) -> Iterator[tuple[Path, int]]:
    """Open the part of a blob for us alone; while another pull works on it, one of our own."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    path, descriptor = shared, os.open(shared, flags, 0o600)
    if not _ours(descriptor):
        os.close(descriptor)
        path, descriptor = private, os.open(private, flags, 0o600)
    try:
        yield path, descriptor
    finally:
        os.close(descriptor)


def _ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # Another pull may have finished it, and taken it away, between our open and our lock.
    return os.fstat(descriptor).st_nlink > 0


def _parts(path: Path, limit: int) -> Iterator[bytes]:
    """Yield at most `limit` bytes of what is there: more than the blob has was not written by this code."""
    with path.open("rb") as file:
        while limit > 0 and (part := file.read(min(_READ_BYTES, limit))):
            limit -= len(part)
            yield part


def _write(descriptor: int, part: bytes) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]
