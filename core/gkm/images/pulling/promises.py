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

More = Callable[[int, int], None]
"""Called with bytes of content and of disk beyond a promise; it adds them to the promise, or raises why not."""


class Promise:
    """What one pull may still write, in bytes. Thread-safe, but for `unpacked`, which one thread calls.

    An image that claims no size is taken for as large as its blobs, until more of it comes.
    """

    def __init__(self, image: CacheImage, more: More) -> None:
        self._more = more
        self._lock = Lock()
        self._blobs = image.download_bytes
        self._content = self._files = image.download_bytes if image.size_bytes is None else image.size_bytes

    @property
    def left(self) -> int:
        """Return how many bytes of the disk are promised and not written yet."""
        with self._lock:
            return self._blobs + self._files

    def add(self, content: int, disk: int) -> None:
        """Promise more: bytes of content, and bytes of the disk for files."""
        with self._lock:
            self._content += content
            self._files += disk

    def downloaded(self, count: int) -> None:
        """Note bytes of blobs that are on the disk."""
        with self._lock:
            self._blobs = max(0, self._blobs - count)

    def unpacked(self, content: int, disk: int) -> None:
        """Take room for bytes of content that are about to be written, and for what the disk needs for them.

        Raises:
            GKMError: there is no room for them.
        """
        short, short_disk = content - self._content, disk - self._files
        if short > 0 or short_disk > 0:
            self._more(_step(short), _step(short_disk))
        with self._lock:
            self._content -= content
            self._files -= disk


_kept: dict[tuple[int, str, str], Promise] = {}
"""By device, repository and digest: the same content from two repositories is two downloads."""
_lock = Lock()


@contextmanager
def kept(directory: Path, image: CacheImage, promise: Promise) -> Iterator[None]:
    """Count a promise among those of the disk of `directory` while its image is pulled."""
    key = _key(directory, image)
    with _lock:
        _kept[key] = promise
    try:
        yield
    finally:
        with _lock:
            if _kept.get(key) is promise:
                del _kept[key]


def of(directory: Path, image: CacheImage) -> Promise | None:
    """Return what whoever called for a pull of an image was promised for it on the disk of `directory`."""
    with _lock:
        return _kept.get(_key(directory, image))


def pending(directory: Path) -> int:
    """Return how many bytes of the disk of `directory` are promised and not written yet."""
    device = directory.stat().st_dev
    with _lock:
        return sum(promise.left for (disk, _, _), promise in _kept.items() if disk == device)


def blocks(size: int) -> int:
    """Return how many bytes of a disk a file of `size` bytes takes."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


def _key(directory: Path, image: CacheImage) -> tuple[int, str, str]:
    return directory.stat().st_dev, image.ref.name, image.digest


def _step(short: int) -> int:
    return max(short, STEP_BYTES) if short > 0 else 0
