"""Bound the time of an extraction, because bounds of bytes and entries do not bound the cost of a byte.

Compressed data can consist of a million pieces that yield one byte each: we measured half a megabyte a second, which is
40 hours for the largest image. So the output must have a minimum rate, far below the rate of a slow disk.
"""

import time

from gkm.api.errors import GKMError, Reason

GRACE_SECONDS = 120.0
MIN_BYTES_PER_SECOND = 4 << 20
"""Uncompressed. A slow disk writes five times as much."""
SECONDS_PER_FILE = 0.02
"""A slow disk creates hundreds of files a second."""


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
