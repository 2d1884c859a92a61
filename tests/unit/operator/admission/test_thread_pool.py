"""The thread pool: a fixed number of threads, and a bounded queue."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread, current_thread

import pytest
from gkm_operator.admission.https.server import PoolFull, ThreadPool
from support.host.waiting import until

SECONDS = 30


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(threads=2, waiting=2)
    pool.start()
    yield pool
    pool.close()


def test_work_is_done_by_daemons_and_its_result_or_error_comes_back(pool: ThreadPool) -> None:
    def fail() -> None:
        raise ValueError("it")

    assert pool.run(lambda: current_thread().daemon).result(SECONDS)
    with pytest.raises(ValueError, match="it"):
        pool.run(fail).result(SECONDS)
    assert pool.run(lambda: 3).result(SECONDS) == 3


class Body:
    """What a frame held when its work failed."""


def test_failed_work_leaves_no_memory_even_before_garbage_collection(pool: ThreadPool) -> None:
    held: list[weakref.ref[Body]] = []

    def fail() -> None:
        body = Body()
        held.append(weakref.ref(body))
        raise ValueError("it")

    gc.disable()
    try:
        with suppress(ValueError):
            pool.run(fail).result(SECONDS)
        until(lambda: held[0]() is None, "it is let go")
    finally:
        gc.enable()


class Busy:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = Event(), Event()

    def __call__(self) -> bool:
        self.begun.set()
        return self.go_on.wait(SECONDS)


def test_the_queue_is_bounded_and_cancelled_tasks_are_dropped(pool: ThreadPool) -> None:
    works, served = [Busy(), Busy()], Event()
    results = [pool.run(work) for work in works]
    assert all(work.begun.wait(SECONDS) for work in works)
    given_up, waits = pool.run(served.set), pool.run(lambda: 4)
    with pytest.raises(PoolFull):
        pool.run(lambda: 5)
    assert given_up.cancel()
    for work in works:
        work.go_on.set()
    assert waits.result(SECONDS) == 4
    assert all(result.result(SECONDS) for result in results)
    assert not served.is_set()


def test_closing_ends_the_threads_and_drops_waiting_tasks() -> None:
    pool, work, served = ThreadPool(threads=1, waiting=1), Busy(), Event()
    pool.start()
    pool.run(work)
    assert work.begun.wait(SECONDS)
    pool.run(served.set)
    closing = Thread(target=pool.close)
    closing.start()
    until(lambda: pool._tasks.queue[0] is None, "what waited is dropped")
    work.go_on.set()
    closing.join(SECONDS)
    pool.close()
    assert not any(thread.is_alive() for thread in pool._threads)
    assert not served.is_set()
