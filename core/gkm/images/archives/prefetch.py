"""Run an iterator in its own thread while its results are used: decompression beside writing beside hashing.

All of these spend their time outside the interpreter's lock, so they use several cores (bench/bench_pull.py).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

PIECES_AHEAD = 4
"""The number of pieces that are produced in advance: of decompressed data, 4 MiB."""


@contextmanager
def prefetched(parts: Iterable[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator over `parts`, which another thread produces; its exceptions are raised here.

    When the block ends, for any reason, the thread stops and has ended.
    """
    source = iter(parts)
    thread = ThreadPoolExecutor(1, "gkm-ahead")
    try:
        yield _in_order(thread, source, deque(thread.submit(next, source, None) for _ in range(PIECES_AHEAD)))
    finally:
        thread.shutdown(cancel_futures=True)


def _in_order(thread: ThreadPoolExecutor, source: Iterator[T], ahead: deque[Future[T | None]]) -> Iterator[T]:
    while (piece := ahead.popleft().result()) is not None:
        ahead.append(thread.submit(next, source, None))
        yield piece
