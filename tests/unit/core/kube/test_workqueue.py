"""One worker at a time handles a key, and no key is lost while it needs work."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry, WorkQueue
from support.host.waiting import scaled, until
from support.kube.queues import is_idle

SOON = Backoff(0.001, 0.002)
NEVER = 3600.0


@contextmanager
def queue(
    handle: Callable[[str], float | None], *, workers: int = 2, backoff: Backoff = SOON
) -> Iterator[WorkQueue[str]]:
    made = WorkQueue("test", handle, workers=workers, backoff=backoff)
    try:
        yield made
    finally:
        made.close()


def test_every_key_is_handled_once() -> None:
    handled: list[str] = []
    with queue(handled.append) as work:
        for key in ("a", "b", "a", "a"):
            work.add(key)
        assert len(work) == 2
        assert not is_idle(work)
        work.start()
        until(lambda: len(handled) == 2, "both are handled")
        assert sorted(handled) == ["a", "b"]
        assert len(work) == 0


def test_a_key_added_while_it_runs_runs_once_more_and_never_twice_at_once() -> None:
    lock, began, go, rounds = Lock(), Event(), Event(), []

    def handle(key: str) -> None:
        assert lock.acquire(blocking=False), "two workers on one key"
        began.set()
        go.wait(scaled(10))
        rounds.append(key)
        lock.release()

    with queue(handle, workers=4) as work:
        work.start()
        work.add("a")
        assert began.wait(scaled(10))
        assert not is_idle(work)
        for _ in range(5):
            work.add("a")
        assert rounds == []
        go.set()
        until(lambda: len(rounds) == 2, "it ran again")
        until(lambda: is_idle(work), "nothing is left")
        assert rounds == ["a", "a"]


def test_a_slow_key_delays_no_other() -> None:
    stuck, handled = Event(), []

    def handle(key: str) -> None:
        if key == "slow":
            stuck.wait(scaled(10))
        handled.append(key)

    with queue(handle) as work:
        work.start()
        work.add("slow")
        work.add("quick")
        until(lambda: handled == ["quick"], "the other is handled")
        stuck.set()


def test_a_failed_key_is_retried_until_it_succeeds() -> None:
    failures = iter([ApiError(503, "", "away"), Retry("not yet"), RuntimeError("bug")])
    tries = []

    def handle(key: str) -> None:
        tries.append(key)
        if failure := next(failures, None):
            raise failure

    with queue(handle) as work:
        work.start()
        work.add("a")
        until(lambda: len(tries) == 4, "it succeeded")
        until(lambda: is_idle(work), "it is done")
        assert work._failures == {}


def test_an_object_that_has_changed_meanwhile_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    errors = [ApiError(409, "Conflict", "changed"), Retry("not yet"), ApiError(500, "", "away")]

    def handle(_key: str) -> None:
        if errors:
            raise errors.pop(0)

    with queue(handle, workers=1) as work:
        work.start()
        work.add("a")
        until(lambda: not errors and is_idle(work), "it succeeded")
    tries = [record.levelname for record in caplog.records if record.getMessage() == "reconcile retry scheduled"]
    assert tries == ["INFO", "INFO", "WARNING"]


def test_pauses_grow_with_failures_and_obey_the_server() -> None:
    asked: list[tuple[int, float]] = []

    class Noted(Backoff):
        def pause(self, failures: int, at_least: float = 0.0) -> float:
            asked.append((failures, at_least))
            return 0.001

    errors = iter([Retry(""), ApiError(429, "", "", retry_after=7.0), Retry("")])

    def handle(_: str) -> None:
        if error := next(errors, None):
            raise error

    with queue(handle, backoff=Noted()) as work:
        work.start()
        work.add("a")
        until(lambda: len(asked) == 3, "it failed three times")
    assert asked == [(1, 0.0), (2, 7.0), (3, 0.0)]


def test_of_two_times_the_earlier_counts() -> None:
    handled: list[str] = []
    with queue(handled.append) as work:
        work.start()
        work.add("a", NEVER)
        work.add("b")
        until(lambda: handled == ["b"], "b is handled")
        work.add("a", NEVER * 2)
        work.add("a")
        until(lambda: handled == ["b", "a"], "a was brought forward")
        until(lambda: len(work) == 0, "its later time is forgotten")


def test_a_handler_may_request_another_run() -> None:
    looks = []

    def handle(key: str) -> float | None:
        looks.append(key)
        return 0.001 if len(looks) < 3 else None

    with queue(handle) as work:
        work.start()
        work.add("a")
        until(lambda: len(looks) == 3, "it looked three times")
        until(lambda: is_idle(work), "it is content")


def test_a_forgotten_key_does_not_run() -> None:
    handled: list[str] = []
    with queue(handled.append) as work:
        work.add("a")
        work.forget("a")
        work.add("b")
        work.start()
        until(lambda: handled == ["b"], "b is handled")
        assert len(work) == 0


def test_closing_does_not_wait_for_a_worker_that_hangs() -> None:
    hang = Event()
    began = Event()

    def handle(_: str) -> None:
        began.set()
        hang.wait(scaled(30))

    work = WorkQueue("test", handle, workers=1)
    work.start()
    work.add("a")
    assert began.wait(scaled(10))
    assert not work.close(0.01)
    assert work._threads[0].daemon
    hang.set()


def test_closing_before_the_start_is_fine() -> None:
    assert WorkQueue("test", lambda _: None).close()


class Grouped:
    """Handles keys of "group/name": those of `stuck` groups wait until `go` is set."""

    def __init__(self, *stuck: str) -> None:
        self.stuck = stuck
        self.go = Event()
        self.begun: list[str] = []
        self.done: list[str] = []

    def __call__(self, key: str) -> None:
        self.begun.append(key)
        if group_of(key) in self.stuck:
            self.go.wait(scaled(30))
        self.done.append(key)

    def begun_of(self, group: str) -> list[str]:
        return [key for key in list(self.begun) if group_of(key) == group]


def group_of(key: str) -> str:
    return key.partition("/")[0]


@contextmanager
def grouped(handle: Grouped, *, workers: int, per_group: int | None) -> Iterator[WorkQueue[str]]:
    made = WorkQueue("test", handle, workers=workers, backoff=SOON, group=group_of, per_group=per_group)
    try:
        yield made
    finally:
        handle.go.set()
        made.close()


def test_a_group_with_hanging_handlers_delays_no_other() -> None:
    handle = Grouped("a")
    with grouped(handle, workers=8, per_group=2) as work:
        for number in range(500):
            work.add(f"a/{number}")
        work.start()
        until(lambda: len(handle.begun_of("a")) == 2, "two of the group are worked on")
        work.add("b/0")
        until(lambda: handle.done == ["b/0"], "the other group is served while all of the first hang")
        assert handle.begun_of("a") == ["a/0", "a/1"]
        assert len(work) == 498
        handle.go.set()
        until(lambda: is_idle(work), "nobody is forgotten")
        assert sorted(handle.done) == sorted(["b/0", *(f"a/{number}" for number in range(500))])


def test_groups_take_turns_and_keep_their_order() -> None:
    handle = Grouped()
    with grouped(handle, workers=1, per_group=2) as work:
        for key in ("a/1", "a/2", "a/3", "b/1", "b/2", "c/1"):
            work.add(key)
        work.start()
        until(lambda: is_idle(work), "all are handled")
        assert handle.begun == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]


def test_a_key_forgotten_while_its_group_is_busy_does_not_run() -> None:
    handle = Grouped("a")
    with grouped(handle, workers=2, per_group=1) as work:
        work.add("a/1")
        work.start()
        until(lambda: handle.begun == ["a/1"], "the group has all it may have")
        work.add("a/2")
        work.add("a/3")
        work.add("b/1")
        until(lambda: handle.done == ["b/1"], "a worker has passed over those that wait")
        work.forget("a/2")
        handle.go.set()
        until(lambda: is_idle(work), "the rest is handled")
        assert handle.begun == ["a/1", "b/1", "a/3"]


def test_without_a_bound_a_group_may_have_all_workers() -> None:
    handle = Grouped("a")
    with grouped(handle, workers=3, per_group=None) as work:
        for number in range(5):
            work.add(f"a/{number}")
        work.start()
        until(lambda: len(handle.begun_of("a")) == 3, "all workers are on it")


def test_every_run_is_observed_with_its_result() -> None:
    told: list[str] = []
    failing = [Retry("not yet"), ApiError(500, "", "away"), ValueError("a defect")]

    def handle(_key: str) -> None:
        if failing:
            raise failing.pop(0)

    queue = WorkQueue(
        "test", handle, workers=1, backoff=Backoff(0.001, 0.001), observe=lambda result, _: told.append(result)
    )
    queue.add("key")
    queue.start()
    until(lambda: len(told) == 4, "four runs")
    queue.close()
    assert told == ["again", "again", "failed", "done"]


def test_a_jump_of_the_time_of_day_neither_wakes_nor_delays_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter(range(-4000, 4000, 7))
    monkeypatch.setattr(time, "time", lambda: next(days) * 86400.0)
    handled: list[str] = []
    with queue(handled.append) as work:
        work.start()
        work.add("far", NEVER)
        for number in range(20):
            work.add(f"near {number}", 0.001)
        until(lambda: len(handled) == 20, "those that are due are handled")
        assert "far" not in handled
        assert len(work) == 1
