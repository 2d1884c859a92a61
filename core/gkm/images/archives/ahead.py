"""Work that goes on in a thread of its own while its results are used: decompression beside writing beside hashing.

All of them spend their time outside the interpreter's lock, so several cores do what one did (bench/bench_pull.py).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Event, Thread
from typing import Final, TypeVar

T = TypeVar("T")

DEPTH = 4
"""So many pieces are made before they are asked for: of decompressed data, 4 MiB."""


class _End:
    """What comes after the last piece: `error` is what ended it, if anything."""

    def __init__(self, error: BaseException | None) -> None:
        self.error: Final = error


@contextmanager
def ahead(parts: Iterable[T]) -> Iterator[Iterator[T]]:
    """Give an iterator over `parts`, which are made in another thread; what that raises is raised here.

    When the block ends, for whatever reason, nothing more is made, and the thread has ended.
    """
    made: Queue[T | _End] = Queue(DEPTH)
    stop = Event()
    thread = Thread(target=_make, args=(parts, made, stop), name="gkm-ahead", daemon=True)
    thread.start()
    try:
        yield _taken(made)
    finally:
        stop.set()
        while thread.is_alive():  # it may wait for room in the queue
            _drain(made)
            thread.join(0.01)


def _make(parts: Iterable[T], made: "Queue[T | _End]", stop: Event) -> None:
    error: BaseException | None = None
    try:
        for part in parts:
            if stop.is_set():
                return
            made.put(part)
    except BaseException as raised:  # noqa: BLE001 -- whoever takes the pieces raises it
        error = raised
    made.put(_End(error))


def _taken(made: "Queue[T | _End]") -> Iterator[T]:
    while not isinstance(piece := made.get(), _End):
        yield piece
    if piece.error is not None:
        raise piece.error


def _drain(made: "Queue[T | _End]") -> None:
    while not made.empty():
        made.get()
