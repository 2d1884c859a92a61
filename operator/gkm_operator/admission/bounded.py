"""Work that may hang, done in a bounded number of threads, waited for a bounded time."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import BoundedSemaphore, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswer(Exception):
    """It did not finish in time, or every thread is busy with such work; the message says which."""


class Bounded(Generic[T]):
    """Runs functions in at most `threads` threads.

    Who waits gives up after `seconds`; the thread ends when its function does (the registry client bounds that), and
    is counted until then. Threads are daemons: an executor's would keep the process from ending on SIGTERM.
    """

    def __init__(self, threads: int, seconds: float) -> None:
        self._free = BoundedSemaphore(threads)
        self._seconds = seconds

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises.

        Raises:
            NoAnswer: not in time, or no thread is free.
        """
        if not self._free.acquire(blocking=False):
            raise NoAnswer("too many registries are slow at once")
        answer: Future[T] = Future()
        Thread(target=self._work, args=(work, answer), name="check", daemon=True).start()
        if not wait((answer,), self._seconds).done:
            raise NoAnswer(f"its registry did not answer within {self._seconds:g} s")
        return answer.result()

    def _work(self, work: Callable[[], T], answer: Future[T]) -> None:
        try:
            try:
                value = work()
            finally:
                self._free.release()  # before the answer is out: who has it may ask for more
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            answer.set_exception(error)
        else:
            answer.set_result(value)
