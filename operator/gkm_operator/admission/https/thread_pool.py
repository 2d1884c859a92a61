"""A fixed number of threads, and a bounded number of tasks that wait for one."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

_END_SECONDS = 1.0


class PoolFull(Exception):
    """As many tasks wait as may."""


class ThreadPool:
    """Runs functions in `threads` threads; `waiting` more wait.

    Threads are daemons: an executor's would keep the process from ending on SIGTERM.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting)
        self._threads = [Thread(target=self._work, name=f"judge-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Return what will hold the result; one that is cancelled before its turn is never run.

        Raises:
            Full: there is no room to wait.
        """
        answer: Future[T] = Future()
        try:
            # No lambda: its frame would have the future, and the frames of an error that it ends with have that frame.
            self._tasks.put_nowait(partial(_run, work, answer))
        except queue.Full as error:
            raise PoolFull("too many requests wait to be judged") from error
        return answer

    def close(self) -> None:
        """Have the threads end; what waits is dropped. Waits a moment, not for work that hangs. Idempotent."""
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        with suppress(queue.Full):
            self._tasks.put_nowait(None)
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # and with it what it holds, for as long as there is no other
        with suppress(queue.Full):
            self._tasks.put_nowait(None)  # for the next thread


def _run(work: Callable[[], T], answer: Future[T]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        value = work()
    except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
        answer.set_exception(error)
    else:
        answer.set_result(value)
    finally:
        # The error has this frame, and the future the error: without these names that is no cycle.
        del work, answer
