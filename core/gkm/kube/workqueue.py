"""A queue of keys to reconcile, after client-go's workqueue.

One worker at a time handles a key, and a failed key is retried with backoff. A heap orders keys by time. Due keys move
to a scheduler, in which the groups of keys take turns.
"""

import heapq
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from threading import Condition, Thread
from typing import Generic, TypeVar

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError

K = TypeVar("K", bound=Hashable)
_LOG = logging.getLogger(__name__)
IMMEDIATELY = 0.0

_MAX_STALE = 64
"""The number of outdated heap entries that are tolerated before the heap is rebuilt."""

_LONGEST_WAIT_SECONDS = 3600.0
"""Limit of seconds of one wait: a lock cannot wait for longer than threading.TIMEOUT_MAX."""


class Retry(Exception):
    """A work queue's handler raises this to be called again later; the queue logs the message without a traceback.

    `retry_after` is the pause in seconds that a server requested, which the handler has bounded; 0 without one. The
    queue does not retry earlier on its own, but `add` can call the handler earlier: it may have work that needs no
    server.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


RunObserver = Callable[[str, float], None]
"""Called after every run of a handler with its result (done, again or failed) and its seconds."""


class WorkQueue(Generic[K]):
    """A level-triggered queue of keys: a key means that its object needs work, and the handler finds out which.

    `handle(key)` returns None when the object is reconciled, or the seconds until it must run again. After an
    exception, the key is retried with the pause of `backoff`. A key that is added while a worker handles it runs once
    more. The queue holds a key at most once, so it is no longer than the number of objects.

    At most `per_group` workers (None: all) handle keys of one `group` at a time; the other keys of the group wait
    without a worker. Groups take turns; the keys of one group run in the order of their times.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[K], float | None],
        *,
        workers: int = 2,
        backoff: Backoff = Backoff(1.0, 300.0),  # noqa: B008 -- a frozen value
        group: Callable[[K], str] = lambda _key: "",
        per_group: int | None = None,
        observe: RunObserver = lambda _result, _seconds: None,
    ) -> None:
        self.name = name
        self._handle = handle
        self._backoff = backoff
        self._observe = observe
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._scheduler: _GroupScheduler[K] = _GroupScheduler(group, per_group or workers)
        self._running: set[K] = set()
        self._requeued: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._not_before: dict[K, float] = {}
        self._stopped = False
        self._changed = Condition()
        self._threads = [Thread(target=self._work, name=f"{name} {n}", daemon=True) for n in range(workers)]

    def __len__(self) -> int:
        """Return the number of waiting keys."""
        with self._changed:
            return len(self._due)

    def add(self, key: K, after: float = IMMEDIATELY) -> None:
        """Schedule a key `after` seconds from now; an earlier schedule of the key stays.

        It does not run before the pause that the API server requested with its last refusal: a change of the object is
        no reason to burden an overloaded server.
        """
        with self._changed:
            due = max(time.monotonic() + after, self._not_before.get(key, 0.0))
            if key in self._running:
                self._requeued[key] = min(due, self._requeued.get(key, due))
            else:
                self._schedule(key, due)

    def forget(self, key: K) -> None:
        """Remove the key of a deleted object and its count of failures; a running handler is not interrupted."""
        with self._changed:
            for by_key in (self._due, self._requeued, self._failures, self._not_before):
                by_key.pop(key, None)
            self._scheduler.drop(key)

    def start(self) -> None:
        """Start the worker threads that have not started yet."""
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def stop(self) -> None:
        """Stop: no worker takes another key; return at once."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def close(self, seconds: float = 5.0) -> bool:
        """Stop and wait at most `seconds` for the worker threads; return whether all have ended."""
        deadline = time.monotonic() + seconds
        self.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _schedule(self, key: K, due: float) -> None:
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        if len(self._heap) > _MAX_STALE + 2 * len(self._due):
            # A key that is rescheduled earlier leaves its later entry in the heap until that is due.
            self._heap = [item for item in self._heap if self._due.get(item[2]) == item[0]]
            heapq.heapify(self._heap)
        self._changed.notify()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            after = self._run(key)
            with self._changed:
                self._running.discard(key)
                self._scheduler.release(key)
                due = [self._requeued.pop(key)] if key in self._requeued else []
                due += [time.monotonic() + after] if after is not None else []
                if due:
                    self._schedule(key, max(min(due), self._not_before.get(key, 0.0)))

    def _next(self) -> K | None:
        """Return the next due key, None after `close`."""
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                self._collect(now)
                if (key := self._scheduler.dequeue()) is not None:
                    del self._due[key]
                    self._running.add(key)
                    # Another worker may wait for a later key than the next one.
                    self._changed.notify()
                    return key
                self._changed.wait(min(self._heap[0][0] - now, _LONGEST_WAIT_SECONDS) if self._heap else None)
            return None

    def _collect(self, now: float) -> None:
        """Move the due keys to the scheduler."""
        # An entry that differs from the time of its key is outdated.
        while self._heap and (self._heap[0][0] <= now or self._due.get(self._heap[0][2]) != self._heap[0][0]):
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self._scheduler.enqueue(key)

    def _run(self, key: K) -> float | None:
        """Handle a key; return the seconds until it must run again, None if it need not."""
        retry_after, refused = 0.0, False
        began = time.monotonic()
        result = "again"
        try:
            after = self._handle(key)
        except (Retry, ApiError) as error:
            retry_after, refused = error.retry_after, isinstance(error, ApiError) and error.retry_after > 0
            # A conflict is normal: the watch delivers the newer object, if it has not yet.
            level = logging.INFO if isinstance(error, Retry) or error.conflict else logging.WARNING
            _LOG.log(level, "reconcile retry scheduled", extra=fields(queue=self.name, key=str(key), why=str(error)))
        except Exception:  # noqa: BLE001 -- a handler must not end the worker
            _LOG.exception("reconcile failed, retry scheduled", extra=fields(queue=self.name, key=str(key)))
            result = "failed"
        else:
            self._failures.pop(key, None)
            self._not_before.pop(key, None)
            result = "done"
            return after
        finally:
            self._observe(result, time.monotonic() - began)
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        pause = self._backoff.pause(failures, retry_after)
        if refused:
            with self._changed:
                self._not_before[key] = time.monotonic() + pause
        return pause


class _GroupScheduler(Generic[K]):
    """Due keys by group, and the number of busy workers of each group. The lock of the caller guards it.

    A step takes time in proportion to the number of groups at their limit, which is at most the number of workers.
    """

    def __init__(self, group: Callable[[K], str], max_active: int) -> None:
        self._group = group
        self._max_active = max_active
        self._waiting: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        self._active: Counter[str] = Counter()

    def enqueue(self, key: K) -> None:
        """Append a due key to its group."""
        self._waiting.setdefault(self._group(key), OrderedDict())[key] = None

    def drop(self, key: K) -> None:
        """Remove a key, if it waits."""
        group = self._group(key)
        keys = self._waiting.get(group, OrderedDict())
        keys.pop(key, None)
        if not keys:
            self._waiting.pop(group, None)

    def dequeue(self) -> K | None:
        """Take the first key of the next group below its limit, None without such a group."""
        group = next((group for group in self._waiting if self._active[group] < self._max_active), None)
        if group is None:
            return None
        key, _ = self._waiting[group].popitem(last=False)
        self._active[group] += 1
        if self._waiting[group]:
            self._waiting.move_to_end(group)
        else:
            del self._waiting[group]
        return key

    def release(self, key: K) -> None:
        """Record that the worker of a key is free."""
        group = self._group(key)
        self._active[group] -= 1
        if not self._active[group]:
            del self._active[group]
