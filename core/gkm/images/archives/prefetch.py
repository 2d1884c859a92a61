"""Work that goes on in a thread of its own while its results are used: decompression beside writing beside hashing.

All of them spend their time outside the interpreter's lock, so several cores do what one did (bench/bench_pull.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Event, Thread
from typing import Final, TypeVar

T = TypeVar("T")

QUEUE_DEPTH = 4
"""So many pieces are made before they are asked for: of decompressed data, 4 MiB."""


class _End:
    """What comes after the last piece: `error` is what ended it, if anything."""

    def __init__(self, error: BaseException | None) -> None:
        self.error: Final = error


@contextmanager
def prefetched(parts: Iterable[T]) -> Iterator[Iterator[T]]:
    """Give an iterator over `parts`, which are made in another thread; what that raises is raised here.

    When the block ends, for whatever reason, nothing more is made, and the thread has ended.
    """
    queue: Queue[T | _End] = Queue(QUEUE_DEPTH)
    stop = Event()
    thread = Thread(target=_produce, args=(parts, queue, stop), name="gkm-ahead", daemon=True)
    thread.start()
    try:
        yield _consume(queue)
    finally:
        stop.set()
        while thread.is_alive():  # it may wait for room in the queue
            _drain(queue)
            thread.join(0.01)


def _produce(parts: Iterable[T], queue: "Queue[T | _End]", stop: Event) -> None:
    error: BaseException | None = None
    try:
        for part in parts:
            if stop.is_set():
                return
            queue.put(part)
    except BaseException as raised:  # noqa: BLE001 -- whoever takes the pieces raises it
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
