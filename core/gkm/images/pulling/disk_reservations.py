"""The disk space that one pull reserved and has not written yet.

A pull reserves all the space that its image claims before it begins. Written bytes leave the reservation, because the
file system counts them from then on. A pull that needs more than the claim extends its reservation before it writes.
"""

from collections.abc import Callable
from threading import Lock

from gkm.images.cache import CacheImage

BLOCK_BYTES = 4096
"""The smallest number of bytes that a file or directory takes on the disk."""
STEP_BYTES = 1 << 20
"""The smallest number of bytes by which a reservation is extended: each extension measures the disk."""

GrowReservation = Callable[[int, int], None]
"""Reserves more bytes of content and of disk, or raises GKMError."""


class DiskReservation:
    """The disk space that one pull reserved and has not used yet. Thread-safe, except `consume`, for one thread.

    An image without a claimed size is taken to be as large as its blobs until more of it arrives.
    """

    def __init__(self, image: CacheImage, grow: GrowReservation) -> None:
        self._grow = grow
        self._lock = Lock()
        self._blobs = image.download_bytes
        self._content = self._files = image.download_bytes if image.size_bytes is None else image.size_bytes

    @property
    def remaining(self) -> int:
        """Return the number of reserved bytes that the pull has not written to the disk yet."""
        with self._lock:
            return self._blobs + self._files

    def extend(self, content: int, disk: int) -> None:
        """Reserve more bytes for the pull: `content` in the store, and `disk` for files."""
        with self._lock:
            self._content += content
            self._files += disk

    def blob_written(self, count: int) -> None:
        """Release the reservation for `count` blob bytes that were written."""
        with self._lock:
            self._blobs = max(0, self._blobs - count)

    def consume(self, content: int, disk: int) -> None:
        """Use reserved bytes of content and of disk; call it right before writing them.

        Extends the reservation if needed.

        Raises:
            GKMError: the disk or the store has too little space for them.
        """
        short, short_disk = content - self._content, disk - self._files
        if short > 0 or short_disk > 0:
            self._grow(_step(short), _step(short_disk))
        with self._lock:
            self._content -= content
            self._files -= disk


def disk_bytes(size: int) -> int:
    """Return how many bytes a file of `size` bytes takes on the disk."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


def _step(short: int) -> int:
    return max(short, STEP_BYTES) if short > 0 else 0
