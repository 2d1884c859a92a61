"""Prefetching in a thread keeps the pieces and their order, and leaves no thread behind."""

import threading
from collections.abc import Iterator

import pytest
from gkm.images.archives.prefetch import QUEUE_DEPTH, prefetched
from support.host.waiting import scaled


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "gkm-ahead"]


@pytest.mark.parametrize("count", [0, 1, QUEUE_DEPTH, 10 * QUEUE_DEPTH])
def test_prefetched_pieces_arrive_unchanged_and_in_order(count: int) -> None:
    pieces = [bytes([number]) for number in range(count)]
    with prefetched(iter(pieces)) as taken:
        assert list(taken) == pieces
    assert threads() == []


def test_an_error_of_the_producer_reaches_the_consumer_after_the_earlier_pieces() -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    seen = []
    with pytest.raises(ZeroDivisionError), prefetched(broken()) as taken:
        seen += list(taken)
    with prefetched(broken()) as taken:
        assert next(taken) == b"one"
    assert threads() == []


def test_a_consumer_that_stops_early_stops_the_producer() -> None:
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


def test_the_producer_waits_for_space_in_the_queue() -> None:
    made = threading.Semaphore(0)

    def counted() -> Iterator[bytes]:
        for _ in range(100):
            made.release()
            yield b"x"

    with prefetched(counted()) as taken:
        for _ in range(QUEUE_DEPTH + 1):  # those in the queue, and one that waits for space
            assert made.acquire(timeout=scaled(10))
        assert not made.acquire(timeout=0.2)
        assert len(list(taken)) == 100
