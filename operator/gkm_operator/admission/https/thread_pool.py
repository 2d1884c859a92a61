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
    """The queue of waiting tasks is full."""


class ThreadPool:
    """Runs functions in `threads` threads; at most `waiting` more wait.

    The threads are daemons: threads of an executor would delay the end of the process after SIGTERM.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting)
        self._threads = [Thread(target=self._work, name=f"judge-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Return the future of the result; a future cancelled before its task starts drops the task.

        Raises:
            PoolFull: the queue is full.
        """
        future: Future[T] = Future()
        try:
            # Not a lambda: its frame would refer to the future, and the frames of an error in the future refer to that
            # frame.
            self._tasks.put_nowait(partial(_run, work, future))
        except queue.Full as error:
            raise PoolFull("too many requests wait for a review") from error
        return future

    def close(self) -> None:
        """Stop the threads and drop waiting tasks. Waits a moment, but not for a task that hangs. Idempotent."""
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
            del task  # release its memory while the thread waits for the next task
        with suppress(queue.Full):
            self._tasks.put_nowait(None)  # wakes the next thread


def _run(work: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = work()
    except BaseException as error:  # noqa: BLE001 -- raised again by the future
        future.set_exception(error)
    else:
        future.set_result(value)
    finally:
        # The error refers to this frame, and the future to the error: without these names there is no cycle.
        del work, future
