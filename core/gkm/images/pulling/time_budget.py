"""How long an extraction may take: bounds of bytes and entries do not bound what a byte costs.

Compressed data can be made of a million pieces that yield a byte each: half a megabyte a second was measured, which is
40 hours for the largest image. So what comes out must come at a pace; a disk is given far more time than it needs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gkm.api.errors import GKMError, Reason

GRACE_SECONDS = 120.0
MIN_BYTES_PER_SECOND = 4 << 20
"""Uncompressed. Slow disks write five times as much."""
SECONDS_PER_FILE = 0.02
"""Slow disks make hundreds of files a second."""


@dataclass(slots=True)
class TimeBudget:
    """The time of one extraction, from now on; `clock` tells seconds."""

    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
        self._started = self.clock()

    def check(self, size: int, files: int) -> None:
        """Accept that so many bytes and files have come out by now.

        Raises:
            GKMError: NODE_ERROR: a disk may be slow only for a while, so it is tried again.
        """
        allowed = GRACE_SECONDS + size / MIN_BYTES_PER_SECOND + files * SECONDS_PER_FILE
        if self.clock() - self._started > allowed:
            raise GKMError(
                Reason.NODE_ERROR,
                f"unpacking takes too long: {size} bytes in {files} files after {allowed:.0f} seconds",
                "the disk is very slow, or the layers are made to take long",
            )
