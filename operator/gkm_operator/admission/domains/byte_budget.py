"""A limit on the bytes of all requests that are decoded and decided at one time.

The server bounds the bytes of bodies; decoded, these take up to 20 times as much, as long as their review lasts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from gkm_operator.admission.review import ReviewBusy

MAX_BYTES = 4 << 20
"""One body of the largest size, or 200 of the usual 20 KB."""
WAIT_SECONDS = 0.5
"""The API server repeats a request after 503; a thread that waits is lacking elsewhere."""


class ByteBudget:
    """At most `limit` bytes at a time, or one larger request. Thread-safe."""

    def __init__(self, limit: int = MAX_BYTES, seconds: float = WAIT_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._used = 0
        self._released = Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes until the block ends.

        Raises:
            ReviewBusy: other requests have them for too long.
        """
        with self._released:
            if not self._released.wait_for(lambda: self._fits(size), self._seconds):
                raise ReviewBusy("too many large requests about workloads are under review at once")
            self._used += size
        try:
            yield
        finally:
            with self._released:
                self._used -= size
                self._released.notify_all()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit
