"""Clients obey the pause that an overloaded server requests, within bounds."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube import decoding
from gkm.kube.errors import MAX_RETRY_AFTER_SECONDS, ApiError, from_body
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GKMCACHES
from gkm.kube.workqueue import Retry, WorkQueue
from hypothesis import given
from hypothesis import strategies as st
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.queues import is_idle
from support.kube.raw_server import RawServer, response

ASKED = {
    "0": 0.0,
    "1": 1.0,
    "60": 60.0,
    "61": 60.0,
    "1000000000": 60.0,
    "9" * 400: 60.0,
    "": 0.0,
    "soon": 0.0,
    "-1": 0.0,
    "1.5": 0.0,
    "1e9": 0.0,
    "\u00b2": 0.0,
    "Wed, 21 Oct 2099 07:28:00 GMT": 0.0,
}
NEVER = 3600.0


@pytest.mark.parametrize(("header", "seconds"), ASKED.items())
def test_a_requested_pause_is_bounded(header: str, seconds: float) -> None:
    with RawServer.start(lambda _: response("429 Too Many Requests", Retry_After=header)) as server:
        with pytest.raises(ApiError) as caught:
            server.api().get(GKMCACHES, "x", "a")
        assert (caught.value.status, caught.value.retry_after) == (429, seconds)
        # The caller decides when to retry; the client sends one request.
        assert len(server.heads) == 1


@given(st.text(max_size=30) | st.integers().map(str), st.floats(allow_nan=False) | st.integers())
def test_no_response_gives_a_pause_out_of_bounds(header: str, seconds: float) -> None:
    body = json.dumps({"kind": "Status", "details": {"retryAfterSeconds": seconds}}).encode()
    assert 0 <= from_body(429, body, header).retry_after <= MAX_RETRY_AFTER_SECONDS


def test_an_error_in_the_midst_of_a_watch_is_bounded_as_well() -> None:
    told = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 10**12}}
    with pytest.raises(ApiError) as caught:
        decoding.event(GKMCACHES, json.dumps({"type": "ERROR", "object": told}).encode())
    assert (caught.value.status, caught.value.retry_after) == (429, MAX_RETRY_AFTER_SECONDS)


class Noted(Backoff):
    """Keeps what it was asked for and pauses hardly at all."""

    asked: list[tuple[int, float]]
    seconds: float

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        self.asked.append((failures, at_least))
        return self.seconds


def noted(seconds: float = 0.001) -> Noted:
    made = Noted()
    object.__setattr__(made, "asked", [])
    object.__setattr__(made, "seconds", seconds)
    return made


def refusing(times: int, retry_after: float) -> Callable[[str, str], ApiError | None]:
    errors = iter([ApiError(429, "TooManyRequests", "later", retry_after)] * times)
    return lambda verb, _: next(errors, None) if verb == "list" else None


def test_a_reflector_waits_as_long_as_the_server_asks() -> None:
    api, backoff = FakeApi(), noted()
    api.fault = refusing(3, 7.0)
    reflector = Reflector(api, GKMCACHES, lambda _old, _new: None, backoff=backoff)
    reflector.start()
    try:
        assert reflector.synced.wait(scaled(10))
    finally:
        reflector.close()
    assert backoff.asked[:3] == [(1, 7.0), (2, 7.0), (3, 7.0)]


def test_clients_with_the_same_requested_pause_spread_out() -> None:
    pauses = {Backoff().pause(1, 10.0) for _ in range(20)}
    assert len(pauses) > 1
    assert all(10.0 <= pause <= 15.0 for pause in pauses)


def test_a_change_does_not_shorten_the_requested_pause() -> None:
    tries: list[str] = []

    def handle(key: str) -> None:
        tries.append(key)
        if key == "refused":
            raise ApiError(429, "TooManyRequests", "later", retry_after=60.0)

    work = WorkQueue("test", handle, workers=1, backoff=Backoff(0.001, 0.002))
    work.start()
    try:
        work.add("refused")
        until(lambda: work._not_before, "it was refused")
        for _ in range(100):
            work.add("refused")
        work.add("other")
        until(lambda: tries == ["refused", "other"], "another is looked at")
        assert len(work) == 1
        work.forget("refused")
        assert work._not_before == {}
    finally:
        work.close()


def test_the_pause_of_another_server_is_respected_and_work_without_it_is_not_delayed() -> None:
    """A handler passes on the pause of a registry; `add` may bring work that needs no registry, such as a response."""
    tries: list[str] = []
    backoff = noted(NEVER)

    def handle(key: str) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise Retry("busy", retry_after=7.0)

    work = WorkQueue("test", handle, workers=1, backoff=backoff)
    work.start()
    try:
        work.add("a")
        until(lambda: len(work) == 1 and work._failures, "it waits for its retry")
        assert backoff.asked == [(1, 7.0)]
        work.add("a")
        until(lambda: tries == ["a", "a"], "it runs at once")
        until(lambda: is_idle(work), "it is done")
    finally:
        work.close()


def test_repeated_rescheduling_does_not_grow_the_heap() -> None:
    rounds: list[str] = []

    def handle(key: str) -> float:
        rounds.append(key)
        return NEVER

    work = WorkQueue("test", handle, workers=1)

    def waits_after(number: int) -> bool:
        return len(rounds) >= number and len(work) == 1

    work.start()
    try:
        for number in range(1, 1001):
            work.add("a")
            until(partial(waits_after, number), "it was looked at and waits", every=0.0001)
        assert len(work._heap) <= 100
    finally:
        work.close()


@pytest.mark.parametrize("after", [1e10, 1e18, float("inf")])
def test_a_time_beyond_the_longest_wait_ends_no_worker(after: float) -> None:
    handled: list[str] = []
    work = WorkQueue("test", handled.append, workers=1)
    work.start()
    try:
        work.add("far", after)
        work.add("near")
        until(lambda: handled == ["near"], "the other is handled")
        work.add("far")
        until(lambda: handled == ["near", "far"], "and it, brought forward")
    finally:
        work.close()
