"""A limit on the bytes of requests about workloads under review, shared fairly by namespaces.

A decoded request takes up to 20 times the bytes of its text, also while its review waits for the API server.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from gkm_operator.admission.review import ReviewBusy

REVIEWED_BYTES = 16 << 20
"""Of text: three requests of the largest size, and smaller ones."""
WAIT_SECONDS = 0.5
"""The API server repeats a request after 503; a thread that waits is lacking elsewhere."""


class ByteBudget:
    """At most `limit` bytes at a time. A namespace gets no more than it leaves to others: half of it when alone.

    So no number of namespaces takes the last bytes from a usual request, of 20 KB. Thread-safe.
    """

    def __init__(self, limit: int = REVIEWED_BYTES) -> None:
        self._free = limit
        self._used: Counter[str] = Counter()
        self._released = Condition()

    @contextmanager
    def reserve(self, namespace: str, size: int, seconds: float = WAIT_SECONDS) -> Iterator[None]:
        """Reserve `size` bytes until the block ends; wait for them for at most `seconds`.

        Raises:
            ReviewBusy: other requests have them for too long.
        """
        with self._released:
            if not self._released.wait_for(lambda: self._fits(namespace, size), min(seconds, WAIT_SECONDS)):
                raise ReviewBusy("too many large requests about workloads are under review at once")
            self._free -= size
            self._used[namespace] += size
        try:
            yield
        finally:
            with self._released:
                self._free += size
                self._used[namespace] -= size
                if not self._used[namespace]:
                    del self._used[namespace]  # users choose namespaces, so unused ones must not accumulate
                self._released.notify_all()

    def _fits(self, namespace: str, size: int) -> bool:
        return self._used[namespace] + size <= self._free - size
