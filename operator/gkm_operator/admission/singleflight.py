"""Runs work that may hang in a bounded number of threads, waits a bounded time, and runs it once for all its callers.

A registry may be slow or silent. Callers with the same key share one execution, and give up after a fixed time while
the thread goes on. Quotas keep one owner, a registry or a namespace, from taking all threads or all places to wait.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

PARTS = 4
"""Each owner gets this fraction of the threads, so that one slow owner cannot occupy all (docs/decisions/0006)."""


class Overloaded(Exception):
    """Shared work did not finish in time, or a limit of threads or waiting callers is reached; the message says so."""


class NotInTime(Overloaded):
    """The work did not finish in time."""


class SingleFlight(Generic[T]):
    """Runs functions in at most `threads` threads, while at most `waiting` callers wait for a thread or a result.

    A caller gives up after `seconds`, and at once when a quota is exhausted. Its thread ends with the function (the
    registry client bounds that), and counts until then. One owner gets a fourth of the threads at most, and no more
    places to wait than remain free: a crowd of one owner leaves places for others. Threads are daemons: threads of an
    executor would delay the end of the process after SIGTERM.
    """

    def __init__(self, threads: int, seconds: float, waiting: int) -> None:
        self._seconds = seconds
        share = max(1, threads // PARTS)
        self._threads = _OwnerQuota(threads, lambda _free: share)
        self._callers = _OwnerQuota(waiting, lambda free: free)
        self._under_way: dict[Hashable, Future[T]] = {}
        self._changed = Condition()

    def run(self, key: Hashable, owners: Sequence[str], work: Callable[[], T], seconds: float | None = None) -> T:
        """Return the result of `work`, or raise its error; join an execution with the same key that is in progress.

        Give up after `seconds`, if these are fewer than all callers' seconds.

        All callers that wait for the same `key` get the same result, an error too: they do not all retry. `owners`
        names, for messages, the accounts that the work is charged to.

        Raises:
            NotInTime: the work did not finish in time.
            Overloaded: a quota is exhausted.
        """
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        until = time.monotonic() + limit
        with self._caller_slot(owners):
            future = self._join(key, owners, work, until)
            try:
                if not wait((future,), _remaining_seconds(until)).done:
                    raise NotInTime(f"the registry of the image did not answer within {limit:g} s")
                return future.result()
            finally:
                # The error refers to this frame, and the future to the error: without `del`, the registry's data would
                # stay in the frames of that error until the garbage collector runs.
                del future

    @contextmanager
    def _caller_slot(self, owners: Sequence[str]) -> Iterator[None]:
        with self._changed:
            if reason := self._callers.full(owners):
                raise Overloaded(reason)
            self._callers.take(owners)
        try:
            yield
        finally:
            with self._changed:
                self._callers.leave(owners)

    def _join(self, key: Hashable, owners: Sequence[str], work: Callable[[], T], until: float) -> Future[T]:
        with self._changed:
            while key not in self._under_way and (reason := self._threads.full(owners)):
                if not self._changed.wait(_remaining_seconds(until)):
                    raise Overloaded(reason)
            if key in self._under_way:
                return self._under_way[key]
            self._threads.take(owners)
            future = self._under_way[key] = Future()
        try:
            Thread(target=self._work, args=(key, owners, work, future), name="check", daemon=True).start()
        except RuntimeError as error:  # the container's process limit is reached
            self._end(key, owners)
            future.set_exception(Overloaded(f"no thread can be started: {error}"))
        return future

    def _work(self, key: Hashable, owners: Sequence[str], work: Callable[[], T], future: Future[T]) -> None:
        try:
            try:
                value = work()
            finally:
                self._end(key, owners)  # before the result is set: its receiver may start more work
        except BaseException as error:  # noqa: BLE001 -- raised again by the future
            future.set_exception(error)
        else:
            future.set_result(value)
        finally:
            del future, work

    def _end(self, key: Hashable, owners: Sequence[str]) -> None:
        with self._changed:
            del self._under_way[key]
            self._threads.leave(owners)
            self._changed.notify_all()  # all: the quota may not admit the caller that waited longest


class _OwnerQuota:
    """Counts used places, in total and by owner: an owner may use at most `share` of the free ones. Not thread-safe."""

    def __init__(self, number: int, share: Callable[[int], int]) -> None:
        self._free = number
        self._share = share
        self._taken: Counter[str] = Counter()

    def full(self, owners: Sequence[str]) -> str:
        """Return the reason why these owners get no place; "" when they do."""
        if not self._free:
            return "too many registries are slow at once"
        share = self._share(self._free)
        owner = next((owner for owner in owners if self._taken[owner] >= share), "")
        return f"too many images of {owner} are being checked" if owner else ""

    def take(self, owners: Sequence[str]) -> None:
        """Take a place."""
        self._free -= 1
        self._taken.update(owners)

    def leave(self, owners: Sequence[str]) -> None:
        """Release a place."""
        self._free += 1
        self._taken.subtract(owners)
        for owner in owners:
            if not self._taken[owner]:
                del self._taken[owner]  # users choose the owners' names, so unused ones must not accumulate


def _remaining_seconds(until: float) -> float:
    return max(0.0, until - time.monotonic())
