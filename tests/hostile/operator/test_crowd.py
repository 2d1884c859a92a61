"""The HTTPS server under clients that are slow, silent, large, or too many."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gkm_operator.admission.https import connection_limits, server, session
from support.host.waiting import until
from support.operator.webhook import (
    REVIEW,
    BlockingValidator,
    Webhook,
    exchange,
    is_disconnected,
    is_reviewed,
    post,
    read_to_end,
    serving,
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Webhook]:
    with serving(tmp_path) as webhook:
        yield webhook


def test_a_slow_sender_is_disconnected_at_the_deadline(site: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hurried:
        # The handshakes below must end within it, on a busy machine too.
        hurried.setattr(session, "READ_SECONDS", 2.0)
        with site.connect_plain() as silent, site.connect_tls() as waiting, site.connect_tls() as dripping:
            dripping.sendall(post(b" " * 1000)[:-1000])

            def is_dried_up() -> bool:
                try:
                    dripping.sendall(b" ")
                except (ConnectionError, ssl.SSLError):
                    return True
                return False

            until(is_dried_up, "the one that drips is cut off")
            assert is_disconnected(silent)
            assert is_disconnected(waiting)
    assert is_reviewed(site)


def test_plain_http_and_garbage_delay_no_other_client(site: Webhook) -> None:
    with site.connect_plain() as connect_plain, site.connect_plain() as garbage:
        connect_plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        garbage.sendall(b"\x16\x03\x01" + b"\xff" * 100)
        assert is_reviewed(site)
        read_to_end(connect_plain)
        read_to_end(garbage)
    assert is_reviewed(site)


def test_a_prompt_client_is_served_beside_any_number_of_silent_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 4)
    with serving(tmp_path) as site, ExitStack() as held:
        silent = [held.enter_context(site.connect_plain()) for _ in range(40)]
        assert is_reviewed(site)
        assert is_disconnected(silent[0])
        assert len(site.server._limiter._slots) <= 4


def test_an_idle_session_is_evicted_before_an_unfinished_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 2)
    monkeypatch.setattr(connection_limits, "SLOW_SECONDS", 60.0)
    with serving(tmp_path) as site, site.connect_tls() as slow, site.connect_tls() as idle:
        slow.sendall(post(REVIEW)[:-1])
        idle.sendall(post(REVIEW))
        assert idle.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        assert is_reviewed(site)
        assert is_disconnected(idle)
        slow.sendall(post(REVIEW)[-1:])
        assert slow.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_in_review_is_never_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 2)
    validator = BlockingValidator()
    with serving(tmp_path, validator.review) as site, site.connect_tls() as judged, ExitStack() as held:
        judged.sendall(post(REVIEW))
        until(lambda: validator.calls, "it is judged")
        for _ in range(10):
            held.enter_context(site.connect_plain())
        assert site.ask("GET", "/healthz")[0] == 200
        validator.release.set()
        assert judged.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_beyond_the_waiting_limit_gets_retry_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "THREADS", 1)
    monkeypatch.setattr(server, "WAITING", 1)
    validator = BlockingValidator()
    with (
        serving(tmp_path, validator.review) as site,
        site.connect_tls() as judged,
        site.connect_tls() as waiting,
        site.connect_tls() as third,
    ):
        judged.sendall(post(REVIEW))
        until(lambda: validator.calls, "one is judged")
        waiting.sendall(post(REVIEW))
        until(site.server._pool._tasks.full, "another waits")
        third.sendall(post(REVIEW))
        told = third.recv(1 << 10)
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in told
        validator.release.set()
        assert judged.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        assert waiting.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_a_request_past_its_review_deadline_gets_503_and_is_never_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "THREADS", 1)
    validator = BlockingValidator()
    with serving(tmp_path, validator.review) as site, site.connect_tls() as judged:
        judged.sendall(post(REVIEW))
        until(lambda: validator.calls, "it is judged")

        def is_late() -> bool:
            with monkeypatch.context() as hurried:
                hurried.setattr(server, "REVIEW_SECONDS", 0.3)
                return site.ask("POST", "/validate", REVIEW)[0] == 503

        assert is_late(), "it waits behind the one that is judged"
        validator.release.set()
        assert judged.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        assert site.ask("POST", "/validate", REVIEW)[0] == 200
        assert validator.calls == 2
        validator.release.clear()
        assert is_late(), "it is judged"
        validator.release.set()


def test_the_largest_sender_is_evicted_when_requests_exceed_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 1 << 20)
    with serving(tmp_path) as site, site.connect_tls() as large, site.connect_tls() as larger:
        large.sendall(post(b" " * (400 << 10))[:-1])
        larger.sendall(post(b" " * (500 << 10))[:-1])
        until(lambda: site.server._limiter.size > 900 << 10, "both are held")
        assert exchange(site, post(b" " * session.MAX_BODY_BYTES)).startswith(b"HTTP/1.1 503 ")
        with site.connect_tls() as third:
            third.sendall(post(b" " * (450 << 10))[:-1])
            assert is_disconnected(larger)
            assert is_reviewed(site)
            large.sendall(b" ")
            assert large.recv(1 << 10).startswith(b"HTTP/1.1 400 ")
        until(lambda: site.server._limiter.size == 0, "nothing is held for those who are done")


def test_the_body_of_a_request_in_review_is_released(tmp_path: Path) -> None:
    validator = BlockingValidator()
    with serving(tmp_path, validator.review) as site, site.connect_tls() as peer:
        peer.sendall(post(REVIEW + b" " * (1 << 20)))
        until(lambda: validator.calls, "it is judged")
        until(lambda: site.server._limiter.size == 0, "its body was let go")
        validator.release.set()
        assert peer.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
