"""Work that may hang, done in a bounded number of threads, waited for a bounded time, and done once for all who ask."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

PARTS = 4
"""An owner has one part of the threads in so many: it takes as many slow ones to keep the others waiting
(docs/decisions/0006)."""


class Overloaded(Exception):
    """It did not finish in time, or there is no place for it; the message says which."""


class NotInTime(Overloaded):
    """It did not finish in time."""


class SingleFlight(Generic[T]):
    """Runs functions in at most `threads` threads, while at most `waiting` callers wait for one or for its end.

    Who waits gives up after `seconds`, who is one too many at once; the thread ends when its function does (the
    registry client bounds that), and is counted until then. One owner has a fourth of the threads at most, and of
    those who wait no more than there is still room for: a crowd is let in where it takes nobody's place, and whoever
    comes after it finds one. Threads are daemons: an executor's would keep the process from ending on SIGTERM.
    """

    def __init__(self, threads: int, seconds: float, waiting: int) -> None:
        self._seconds = seconds
        share = max(1, threads // PARTS)
        self._threads = _OwnerQuota(threads, lambda _free: share)
        self._callers = _OwnerQuota(waiting, lambda free: free)
        self._under_way: dict[Hashable, Future[T]] = {}
        self._changed = Condition()

    def run(self, what: Hashable, owners: Sequence[str], work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises; what is under way already is not done twice.

        All who wait for the same `what` get the same outcome, a failure too: nobody tries again in a crowd. `owners`
        say in words to whose account it goes.

        Raises:
            NoAnswer: no place is free; as NotInTime, it did not finish.
        """
        until = time.monotonic() + self._seconds
        with self._waiting(owners):
            answer = self._joined(what, owners, work, until)
            try:
                if not wait((answer,), _seconds_left(until)).done:
                    raise NotInTime(f"its registry did not answer within {self._seconds:g} s")
                return answer.result()
            finally:
                # An error has this frame, and the future the error: with this name, what the registry sent would stay
                # in the frames of that error until the garbage collector comes by.
                del answer

    @contextmanager
    def _waiting(self, owners: Sequence[str]) -> Iterator[None]:
        with self._changed:
            if why := self._callers.full(owners):
                raise Overloaded(why)
            self._callers.take(owners)
        try:
            yield
        finally:
            with self._changed:
                self._callers.leave(owners)

    def _joined(self, what: Hashable, owners: Sequence[str], work: Callable[[], T], until: float) -> Future[T]:
        with self._changed:
            while what not in self._under_way and (why := self._threads.full(owners)):
                if not self._changed.wait(_seconds_left(until)):
                    raise Overloaded(why)
            if what in self._under_way:
                return self._under_way[what]
            self._threads.take(owners)
            answer = self._under_way[what] = Future()
        try:
            Thread(target=self._work, args=(what, owners, work, answer), name="check", daemon=True).start()
        except RuntimeError as error:  # the container may have no more processes
            self._end(what, owners)
            answer.set_exception(Overloaded(f"no thread can be started: {error}"))
        return answer

    def _work(self, what: Hashable, owners: Sequence[str], work: Callable[[], T], answer: Future[T]) -> None:
        try:
            try:
                value = work()
            finally:
                self._end(what, owners)  # before the answer is out: who has it may ask for more
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            answer.set_exception(error)
        else:
            answer.set_result(value)
        finally:
            del answer, work

    def _end(self, what: Hashable, owners: Sequence[str]) -> None:
        with self._changed:
            del self._under_way[what]
            self._threads.leave(owners)
            self._changed.notify_all()  # all: the place may not be for whoever waited longest


class _OwnerQuota:
    """How many places are taken, by all and by each owner: at most `share` of those that are free. Not thread-safe."""

    def __init__(self, number: int, share: Callable[[int], int]) -> None:
        self._free = number
        self._share = share
        self._taken: Counter[str] = Counter()

    def full(self, owners: Sequence[str]) -> str:
        """Return why there is no place for these owners, nothing when there is one."""
        if not self._free:
            return "too many registries are slow at once"
        most = self._share(self._free)
        owner = next((owner for owner in owners if self._taken[owner] >= most), "")
        return f"too many images of {owner} are being looked at" if owner else ""

    def take(self, owners: Sequence[str]) -> None:
        """Take a place, where there is one."""
        self._free -= 1
        self._taken.update(owners)

    def leave(self, owners: Sequence[str]) -> None:
        """Give a place back."""
        self._free += 1
        self._taken.subtract(owners)
        for owner in owners:
            if not self._taken[owner]:
                del self._taken[owner]  # owners are named by users: the ones that hold nothing are forgotten


def _seconds_left(until: float) -> float:
    return max(0.0, until - time.monotonic())
