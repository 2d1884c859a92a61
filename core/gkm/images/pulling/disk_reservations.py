"""Room on a disk that pulls were promised and have not filled yet: one account for all pulls of a process.

A pull is promised all that it is known to need before it begins. What it writes is no longer promised, for the disk
says that itself; what it writes beyond its promise it must be given first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from gkm.images.cache import CacheImage

BLOCK_BYTES = 4096
"""What a file or directory takes at least, and what the size of a file is rounded up to: file systems do."""
STEP_BYTES = 1 << 20
"""Beyond its promise a pull asks for so much at once: each time costs a look at the disk."""

GrowReservation = Callable[[int, int], None]
"""Called with bytes of content and of disk beyond a promise; it adds them to the promise, or raises why not."""


class DiskReservation:
    """What one pull may still write, in bytes. Thread-safe, but for `unpacked`, which one thread calls.

    An image that claims no size is taken for as large as its blobs, until more of it comes.
    """

    def __init__(self, image: CacheImage, grow: GrowReservation) -> None:
        self._grow = grow
        self._lock = Lock()
        self._blobs = image.download_bytes
        self._content = self._files = image.download_bytes if image.size_bytes is None else image.size_bytes

    @property
    def remaining(self) -> int:
        """Return how many bytes of the disk are promised and not written yet."""
        with self._lock:
            return self._blobs + self._files

    def extend(self, content: int, disk: int) -> None:
        """Promise more: bytes of content, and bytes of the disk for files."""
        with self._lock:
            self._content += content
            self._files += disk

    def blob_written(self, count: int) -> None:
        """Note bytes of blobs that are on the disk."""
        with self._lock:
            self._blobs = max(0, self._blobs - count)

    def consume(self, content: int, disk: int) -> None:
        """Take room for bytes of content that are about to be written, and for what the disk needs for them.

        Raises:
            GKMError: there is no room for them.
        """
        short, short_disk = content - self._content, disk - self._files
        if short > 0 or short_disk > 0:
            self._grow(_step(short), _step(short_disk))
        with self._lock:
            self._content -= content
            self._files -= disk


_reservations: dict[tuple[int, str, str], DiskReservation] = {}
"""By device, repository and digest: the same content from two repositories is two downloads."""
_lock = Lock()


@contextmanager
def registered(directory: Path, image: CacheImage, reservation: DiskReservation) -> Iterator[None]:
    """Count a promise among those of the disk of `directory` while its image is pulled."""
    key = _key(directory, image)
    with _lock:
        _reservations[key] = reservation
    try:
        yield
    finally:
        with _lock:
            if _reservations.get(key) is reservation:
                del _reservations[key]


def find(directory: Path, image: CacheImage) -> DiskReservation | None:
    """Return what whoever called for a pull of an image was promised for it on the disk of `directory`."""
    with _lock:
        return _reservations.get(_key(directory, image))


def reserved_bytes(directory: Path) -> int:
    """Return how many bytes of the disk of `directory` are promised and not written yet."""
    device = directory.stat().st_dev
    with _lock:
        return sum(reservation.remaining for (disk, _, _), reservation in _reservations.items() if disk == device)


def disk_bytes(size: int) -> int:
    """Return how many bytes of a disk a file of `size` bytes takes."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


def _key(directory: Path, image: CacheImage) -> tuple[int, str, str]:
    return directory.stat().st_dev, image.ref.name, image.digest


def _step(short: int) -> int:
    return max(short, STEP_BYTES) if short > 0 else 0
