"""Pieces that are made in a thread: the same ones, in their order, and no thread is left."""

import threading
from collections.abc import Iterator

import pytest
from gkm.images.archives.prefetch import QUEUE_DEPTH, prefetched


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "gkm-ahead"]


@pytest.mark.parametrize("count", [0, 1, QUEUE_DEPTH, 10 * QUEUE_DEPTH])
def test_what_is_made_is_what_is_taken(count: int) -> None:
    pieces = [bytes([number]) for number in range(count)]
    with prefetched(iter(pieces)) as taken:
        assert list(taken) == pieces
    assert threads() == []


def test_what_making_raises_is_raised_where_it_is_taken_after_what_came_before() -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    seen = []
    with pytest.raises(ZeroDivisionError), prefetched(broken()) as taken:
        seen += list(taken)
    with prefetched(broken()) as taken:
        assert next(taken) == b"one"
    assert threads() == []


def test_who_stops_early_stops_the_making() -> None:
    made = 0

    def endless() -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x"

    with prefetched(endless()) as taken:
        assert next(taken) == b"x"
    after = made
    assert threads() == []
    assert made == after


def test_no_more_is_made_than_there_is_room_for() -> None:
    made = threading.Semaphore(0)

    def counted() -> Iterator[bytes]:
        for _ in range(100):
            made.release()
            yield b"x"

    with prefetched(counted()) as taken:
        for _ in range(QUEUE_DEPTH + 1):  # those in the queue, and the one that waits for room
            assert made.acquire(timeout=10)
        assert not made.acquire(timeout=0.2)
        assert len(list(taken)) == 100
