"""Registries that are slow at admission: bounded in time, in threads and in what one owner takes of them."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread

import pytest
from gkm_operator.admission import singleflight
from gkm_operator.admission.singleflight import PARTS, Overloaded, SingleFlight
from support.host.waiting import scaled, until

PATIENT, SHORT = 30.0, 0.01
A, B = ("registry a.test", "namespace a"), ("registry b.test", "namespace b")


class Slow:
    """Work that blocks until released; counts its threads."""

    def __init__(self) -> None:
        self.go = Event()
        self.begun = 0
        self._lock = Lock()

    def __call__(self) -> int:
        with self._lock:
            self.begun += 1
        self.go.wait(scaled(30))
        return self.begun


@pytest.fixture
def slow() -> Iterator[Slow]:
    work = Slow()
    yield work
    work.go.set()


class Body:
    """What a frame held when its work failed."""


def test_failed_work_leaves_no_memory_even_before_garbage_collection() -> None:
    held: list[weakref.ref[Body]] = []

    def fail() -> int:
        body = Body()
        held.append(weakref.ref(body))
        raise ValueError("it")

    bounded: SingleFlight[int] = SingleFlight(4, PATIENT, 4)
    gc.disable()
    try:
        with suppress(ValueError):
            bounded.run("x", A, fail)
        until(lambda: held[0]() is None, "it is let go")
    finally:
        gc.enable()


def asked(bounded: SingleFlight[int], what: object, owners: tuple[str, ...], work: Callable[[], int]) -> str:
    """Return why there was no answer, or nothing."""
    try:
        bounded.run(what, owners, work)
    except Overloaded as error:
        return str(error)
    return ""


def test_a_caller_gives_up_on_slow_work(slow: Slow) -> None:
    assert asked(SingleFlight(4, SHORT, 4), "x", A, slow) == "the registry of the image did not answer within 0.01 s"


def too_late() -> int:
    raise TimeoutError("the registry's own")


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: 1 // 0, ZeroDivisionError, "by zero"),
        (lambda: int("x"), ValueError, "invalid literal"),
        (too_late, TimeoutError, "the registry's own"),
    ],
)
def test_an_error_of_bounded_work_reaches_its_caller(
    work: Callable[[], int], error: type[Exception], message: str
) -> None:
    bounded: SingleFlight[int] = SingleFlight(1, PATIENT, 1)
    for _ in range(3):
        with pytest.raises(error, match=message):
            bounded.run("x", A, work)
    assert bounded.run("x", A, lambda: 7) == 7


def test_slow_work_uses_no_more_than_its_threads(slow: Slow) -> None:
    bounded: SingleFlight[int] = SingleFlight(3, SHORT, 100)
    said = [asked(bounded, number, (f"registry r{number}",), slow) for number in range(5)]
    assert ["too many registries are slow" in why for why in said] == [False] * 3 + [True] * 2
    until(lambda: slow.begun == 3, "so many are at work")


@pytest.mark.parametrize("shared", ["registry a.test", "namespace a"])
def test_one_owner_uses_a_fourth_of_the_threads_and_others_find_free_ones(slow: Slow, shared: str) -> None:
    bounded: SingleFlight[int] = SingleFlight(4 * PARTS, SHORT, 100)
    said = [asked(bounded, number, (shared, f"other {number}"), slow) for number in range(6)]
    assert [f"too many images of {shared} are being checked" in why for why in said] == [False] * 4 + [True] * 2
    until(lambda: slow.begun == 4, "so many are at work")
    assert asked(bounded, "else", B, slow) == "the registry of the image did not answer within 0.01 s"
    until(lambda: slow.begun == 5, "so many are at work")


def test_a_caller_whose_owner_uses_its_share_gets_a_thread_that_ends_in_time() -> None:
    bounded: SingleFlight[None] = SingleFlight(PARTS, PATIENT, 100)
    first, second = Slow(), Event()
    one = Thread(target=bounded.run, args=("1", A, lambda: first() and None))
    two = Thread(target=bounded.run, args=("2", A, second.set))
    one.start()
    until(lambda: first.begun, "the first is at work")
    two.start()
    until(lambda: bounded._callers._taken[A[0]] == 2, "the second waits")
    assert not second.is_set()
    first.go.set()
    one.join(scaled(30))
    two.join(scaled(30))
    assert second.is_set()


def test_callers_with_one_key_share_one_execution_and_its_result(slow: Slow) -> None:
    bounded: SingleFlight[int] = SingleFlight(PARTS, PATIENT, 100)
    answers: list[int] = []
    callers = [Thread(target=lambda: answers.append(bounded.run("x", A, slow))) for _ in range(20)]
    for caller in callers:
        caller.start()
    until(lambda: bounded._callers._taken[A[0]] == 20, "all wait")
    slow.go.set()
    for caller in callers:
        caller.join(scaled(30))
    assert (answers, slow.begun) == ([1] * 20, 1)


def test_a_failure_is_shared_by_all_callers_without_retries() -> None:
    bounded: SingleFlight[int] = SingleFlight(PARTS, PATIENT, 100)
    go, begun, failures = Event(), [0], [0]

    def failing() -> int:
        begun[0] += 1
        go.wait(scaled(30))
        raise ConnectionError("away")

    def ask() -> None:
        try:
            bounded.run("x", A, failing)
        except ConnectionError:
            failures[0] += 1

    callers = [Thread(target=ask) for _ in range(20)]
    for caller in callers:
        caller.start()
    until(lambda: bounded._callers._taken[A[0]] == 20, "all wait")
    go.set()
    for caller in callers:
        caller.join(scaled(30))
    assert (begun, failures) == ([1], [20])
    assert bounded.run("x", A, lambda: 3) == 3


def test_work_goes_on_for_later_callers_after_one_gives_up(slow: Slow) -> None:
    bounded: SingleFlight[int] = SingleFlight(PARTS, SHORT, 100)
    for _ in range(5):
        assert "did not answer" in asked(bounded, "x", A, slow)
    until(lambda: slow.begun == 1, "so many are at work")


def test_one_owner_has_no_more_waiting_callers_than_places_remain_free(slow: Slow) -> None:
    bounded: SingleFlight[int] = SingleFlight(100, PATIENT, 4)
    callers = [Thread(target=asked, args=(bounded, "x", A, slow)) for _ in range(2)]
    for caller in callers:
        caller.start()
    until(lambda: bounded._callers._taken[A[0]] == 2, "both wait")
    assert asked(bounded, "x", A, slow) == "too many images of registry a.test are being checked"
    assert asked(bounded, "y", B, lambda: 1) == ""
    slow.go.set()
    for caller in callers:
        caller.join(scaled(30))
    assert not any(caller.is_alive() for caller in callers)


def test_a_thread_is_free_again_when_its_late_work_ends(slow: Slow) -> None:
    bounded: SingleFlight[int] = SingleFlight(1, SHORT, 4)
    assert "did not answer" in asked(bounded, "x", A, slow)
    assert "too many" in asked(bounded, "y", B, lambda: 1)
    slow.go.set()
    until(lambda: not asked(bounded, "y", B, lambda: 1), "the thread is free")
    until(lambda: not bounded._threads._taken and not bounded._under_way, "nothing is remembered of who asked")
    assert not bounded._callers._taken


def test_a_process_at_its_thread_limit_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    bounded: SingleFlight[int] = SingleFlight(1, PATIENT, 1)
    with monkeypatch.context() as patched:
        patched.setattr(singleflight, "Thread", Refused)
        assert asked(bounded, "x", A, lambda: 1) == "no thread can be started: can't start new thread"
    assert bounded.run("x", A, lambda: 1) == 1
