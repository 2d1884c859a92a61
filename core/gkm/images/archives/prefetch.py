"""Run an iterator in a separate thread, so that decompression, writing and hashing run in parallel.

All of these spend their time outside the interpreter's lock, so they use several cores (bench/bench_pull.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Event, Thread
from typing import Final, TypeVar

T = TypeVar("T")

QUEUE_DEPTH = 4
"""The number of pieces that are produced in advance: of decompressed data, 4 MiB."""


class _End:
    """The end of the pieces; `error` is the exception that ended them, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error: Final = error


@contextmanager
def prefetched(parts: Iterable[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator over `parts`, which another thread produces; its exceptions are raised here.

    When the block ends, for any reason, the thread stops and has ended.
    """
    queue: Queue[T | _End] = Queue(QUEUE_DEPTH)
    stop = Event()
    thread = Thread(target=_produce, args=(parts, queue, stop), name="gkm-ahead", daemon=True)
    thread.start()
    try:
        yield _consume(queue)
    finally:
        stop.set()
        while thread.is_alive():  # it may wait for space in the queue
            _drain(queue)
            thread.join(0.01)


def _produce(parts: Iterable[T], queue: "Queue[T | _End]", stop: Event) -> None:
    error: BaseException | None = None
    try:
        for part in parts:
            if stop.is_set():
                return
            queue.put(part)
    except BaseException as raised:  # noqa: BLE001 -- the consumer of the pieces raises it
        error = raised
    queue.put(_End(error))


def _consume(queue: "Queue[T | _End]") -> Iterator[T]:
    while not isinstance(piece := queue.get(), _End):
        yield piece
    if piece.error is not None:
        raise piece.error


def _drain(queue: "Queue[T | _End]") -> None:
    while not queue.empty():
        queue.get()
