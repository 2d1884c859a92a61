"""The HTTPS server under clients that are slow, silent, large, or too many."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gkm_operator.admission.https import http1 as messages
from gkm_operator.admission.https import server as serving_module
from gkm_operator.admission.https import session as conversation
from support.host.waiting import until
from support.operator.webhook import REVIEW, Patient, Webhook, answers, is_cut_off, is_judged, post, serving, whole


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Webhook]:
    with serving(tmp_path) as webhook:
        yield webhook


def test_a_slow_sender_is_disconnected_at_the_deadline(site: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "READ_SECONDS", 0.5)
    with site.plain() as silent, site.secret() as waiting, site.secret() as dripping:
        dripping.sendall(post(b" " * 1000)[:-1000])

        def is_dried_up() -> bool:
            try:
                dripping.sendall(b" ")
            except (ConnectionError, ssl.SSLError):
                return True
            return False

        until(is_dried_up, "the one that drips is cut off")
        assert is_cut_off(silent)
        assert is_cut_off(waiting)
    assert is_judged(site)


def test_plain_http_and_garbage_delay_no_other_client(site: Webhook) -> None:
    with site.plain() as plain, site.plain() as garbage:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        garbage.sendall(b"\x16\x03\x01" + b"\xff" * 100)
        assert is_judged(site)
        whole(plain)
        whole(garbage)
    assert is_judged(site)


def test_a_prompt_client_is_served_beside_any_number_of_silent_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "CONNECTIONS", 4)
    with serving(tmp_path) as site, ExitStack() as held:
        silent = [held.enter_context(site.plain()) for _ in range(40)]
        assert is_judged(site)
        assert is_cut_off(silent[0])
        assert len(site.server._limiter) <= 4


def test_an_idle_session_is_evicted_before_an_unfinished_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "CONNECTIONS", 2)
    with serving(tmp_path) as site, site.secret() as slow, site.secret() as idle:
        slow.sendall(post(REVIEW)[:-1])
        idle.sendall(post(REVIEW))
        assert idle.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        assert is_judged(site)
        assert is_cut_off(idle)
        slow.sendall(post(REVIEW)[-1:])
        assert slow.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_in_review_is_never_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "CONNECTIONS", 2)
    judge = Patient()
    with serving(tmp_path, judge) as site, site.secret() as judged, ExitStack() as held:
        judged.sendall(post(REVIEW))
        until(lambda: judge.came, "it is judged")
        for _ in range(10):
            held.enter_context(site.plain())
        assert site.ask("GET", "/healthz")[0] == 200
        judge.go_on.set()
        assert judged.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_beyond_the_waiting_limit_gets_retry_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "THREADS", 1)
    monkeypatch.setattr(serving_module, "WAITING", 1)
    judge = Patient()
    with serving(tmp_path, judge) as site, site.secret() as judged, site.secret() as waiting, site.secret() as third:
        judged.sendall(post(REVIEW))
        until(lambda: judge.came, "one is judged")
        waiting.sendall(post(REVIEW))
        until(site.server._pool._tasks.full, "another waits")
        third.sendall(post(REVIEW))
        told = third.recv(1 << 10)
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in told
        judge.go_on.set()
        assert judged.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        assert waiting.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_past_its_review_deadline_gets_503_and_is_never_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "THREADS", 1)
    monkeypatch.setattr(serving_module, "REVIEW_SECONDS", 0.3)
    judge = Patient()
    with serving(tmp_path, judge) as site:
        assert site.ask("POST", "/validate", REVIEW)[0] == 503
        assert site.ask("POST", "/validate", REVIEW)[0] == 503
        judge.go_on.set()
        assert site.ask("POST", "/validate", REVIEW)[0] == 200
        assert judge.came == 2


def test_the_largest_sender_is_evicted_when_requests_exceed_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "MAX_HELD_BYTES", 1 << 20)
    with serving(tmp_path) as site, site.secret() as large, site.secret() as larger:
        large.sendall(post(b" " * (400 << 10))[:-1])
        larger.sendall(post(b" " * (500 << 10))[:-1])
        until(lambda: site.server._limiter.size > 900 << 10, "both are held")
        assert answers(site, post(b" " * messages.MAX_BODY_BYTES)).startswith(b"HTTP/1.1 503 ")
        with site.secret() as third:
            third.sendall(post(b" " * (450 << 10))[:-1])
            assert is_cut_off(larger)
            assert is_judged(site)
            large.sendall(b" ")
            assert large.recv(1 << 10).startswith(b"HTTP/1.1 400 ")
        until(lambda: site.server._limiter.size == 0, "nothing is held for those who are done")


def test_the_body_of_a_request_in_review_is_released(tmp_path: Path) -> None:
    judge = Patient()
    with serving(tmp_path, judge) as site, site.secret() as peer:
        peer.sendall(post(REVIEW + b" " * (1 << 20)))
        until(lambda: judge.came, "it is judged")
        until(lambda: site.server._limiter.size == 0, "its body was let go")
        judge.go_on.set()
        assert peer.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
