"""Keys that want work, after client-go's workqueue: each key by one worker at a time, failures with growing pauses."""

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
"""So many places of keys that were brought forward are left where they are."""

_LONGEST_WAIT_SECONDS = 3600.0
"""A lock of Python cannot wait for more than threading.TIMEOUT_MAX; what is due later is looked at again."""


class Retry(Exception):
    """Raised by a handler for "not yet, try again": the text is logged on one line, without a traceback."""


RunObserver = Callable[[str, float], None]
"""Told of every run of a handler: done, again (a passing reason) or failed, and the seconds it took."""


def _no_observer(result: str, seconds: float) -> None:
    """Tell nobody."""


def _same_group(_: object) -> str:
    return ""


class WorkQueue(Generic[K]):
    """A level-triggered queue: a key says THAT there is something to do, the handler finds out what.

    `handle(key)` returns None when all is as it should be, or the seconds after which to look again. What it raises
    puts the key back with the pause of `backoff`. A key that is added while it is worked on runs once more after.
    The queue holds a key at most once, so it is no longer than there are objects.

    Keys of one `group` are worked on by at most `per_group` workers at a time (None: by all); the others of the group
    wait without holding one. Groups whose keys are due take turns, the keys of one come in the order of their times.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[K], float | None],
        *,
        workers: int = 2,
        backoff: Backoff = Backoff(1.0, 300.0),  # noqa: B008 -- a frozen value
        group: Callable[[K], str] = _same_group,
        per_group: int | None = None,
        observe: RunObserver = _no_observer,
    ) -> None:
        self._name = name
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
        """Return how many keys wait."""
        with self._changed:
            return len(self._due)

    @property
    def idle(self) -> bool:
        """Return whether no key waits or is worked on."""
        with self._changed:
            return not self._due and not self._running

    def add(self, key: K, after: float = IMMEDIATELY) -> None:
        """Ask for work on a key, `after` seconds from now at the latest; an earlier time that stands, stands.

        Nor is it earlier than the server asked for, when it last refused: news of an object are no reason to come back
        to a server that is overrun.
        """
        with self._changed:
            due = max(time.monotonic() + after, self._not_before.get(key, 0.0))
            if key in self._running:
                self._requeued[key] = min(due, self._requeued.get(key, due))
            else:
                self._schedule(key, due)

    def forget(self, key: K) -> None:
        """Drop a key whose object has gone, with its failures; work under way is not interrupted."""
        with self._changed:
            for memory in (self._due, self._requeued, self._failures, self._not_before):
                memory.pop(key, None)
            self._scheduler.drop(key)

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Take no more keys and wait for the workers, at most so long; their threads do not keep the process."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _schedule(self, key: K, due: float) -> None:
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        if len(self._heap) > _MAX_STALE + 2 * len(self._due):
            # Keys that are brought forward again and again would fill it with later places until those are due.
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
        """Return the next key that is due, None when the queue is closed."""
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                self._collect(now)
                if (key := self._scheduler.dequeue()) is not None:
                    del self._due[key]
                    self._running.add(key)
                    # Another worker may be waiting for a later key than the one that comes next.
                    self._changed.notify()
                    return key
                self._changed.wait(min(self._heap[0][0] - now, _LONGEST_WAIT_SECONDS) if self._heap else None)
            return None

    def _collect(self, now: float) -> None:
        """Hand the keys that are due to their groups."""
        # A key that was brought forward leaves its later place in the heap behind; that one is stale.
        while self._heap and (self._heap[0][0] <= now or self._due.get(self._heap[0][2]) != self._heap[0][0]):
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self._scheduler.enqueue(key)

    def _run(self, key: K) -> float | None:
        """Work on a key; return after how many seconds it wants to run again."""
        retry_after = 0.0
        began = time.monotonic()
        result = "again"
        try:
            after = self._handle(key)
        except Retry as error:
            _LOG.info("tried again later", extra=fields(queue=self._name, key=str(key), why=str(error)))
        except ApiError as error:
            retry_after = error.retry_after
            _LOG.warning("tried again later", extra=fields(queue=self._name, key=str(key), why=str(error)))
        except Exception:  # noqa: BLE001 -- whatever a handler does, the worker goes on
            _LOG.exception("handler failed", extra=fields(queue=self._name, key=str(key)))
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
        if retry_after:
            with self._changed:
                self._not_before[key] = time.monotonic() + pause
        return pause


class _GroupScheduler(Generic[K]):
    """Keys that are due, and how many of each group are taken. The caller's lock guards it.

    No step costs more than there are groups with all they may have, and those hold a worker each at least.
    """

    def __init__(self, group: Callable[[K], str], max_active: int) -> None:
        self._group = group
        self._max_active = max_active
        self._waiting: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        self._active: Counter[str] = Counter()

    def enqueue(self, key: K) -> None:
        """Let a key wait for its turn, behind the others of its group."""
        self._waiting.setdefault(self._group(key), OrderedDict())[key] = None

    def drop(self, key: K) -> None:
        """Let a key wait no more, if it does."""
        group = self._group(key)
        keys = self._waiting.get(group, OrderedDict())
        keys.pop(key, None)
        if not keys:
            self._waiting.pop(group, None)

    def dequeue(self) -> K | None:
        """Take the first key of the next group that may have one more, None where there is none."""
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
        """Give back what was taken for a key."""
        group = self._group(key)
        self._active[group] -= 1
        if not self._active[group]:
            del self._active[group]
