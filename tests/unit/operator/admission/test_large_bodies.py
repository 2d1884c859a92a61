"""Large request bodies: a few at a time, and nothing of them is held once their connection has given way."""

import gc
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest
from gkm_operator.admission.https import connection_limits, server, session
from gkm_operator.admission.https.session import LARGE_BYTES, Connection, HttpConnection, HttpSession
from support.host.waiting import until
from support.operator.webhook import REVIEW, SECONDS, Webhook, exchange, is_disconnected, is_reviewed, post, serving

LARGE = REVIEW + b" " * LARGE_BYTES


@contextmanager
def one_at_a_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(server, "LIMIT", 1)
    with serving(directory) as site:
        yield site


def begun(site: Webhook) -> ssl.SSLSocket:
    """Send all of a large request but its last byte, and wait until the server reads it."""
    peer = site.connect_tls()
    peer.sendall(post(LARGE)[:-1])
    until(lambda: len(site.server._large._holders), "the server reads it")
    return peer


def ended(peer: ssl.SSLSocket) -> bytes:
    """Send the last byte, and return the beginning of the answer."""
    peer.sendall(post(LARGE)[-1:])
    return peer.recv(1 << 10)


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(*types: type) -> int:
    return sum(isinstance(each, types) for each in gc.get_objects())


def test_a_large_body_beyond_the_limit_gets_retry_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(connection_limits, "LARGE_SECONDS", 60.0)
    with one_at_a_time(tmp_path, monkeypatch) as site, begun(site) as first:
        told = exchange(site, post(LARGE))
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in told
        assert is_reviewed(site)
        assert ended(first).startswith(b"HTTP/1.1 200 ")
        assert exchange(site, post(LARGE, "Connection: close")).startswith(b"HTTP/1.1 200 ")


def test_a_large_body_waits_until_another_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "LARGE_SECONDS", 60.0)
    with one_at_a_time(tmp_path, monkeypatch) as site, begun(site) as first, site.connect_tls() as second:
        second.sendall(post(LARGE))
        until(lambda: len(site.server._large._waiting), "the second waits")
        assert ended(first).startswith(b"HTTP/1.1 200 ")
        assert second.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        until(lambda: not len(site.server._large._holders), "nothing large is held")


def test_a_slow_large_body_is_evicted_for_a_waiting_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "LARGE_SECONDS", 0.1)
    monkeypatch.setattr(connection_limits, "WAIT_SECONDS", float(SECONDS))
    with one_at_a_time(tmp_path, monkeypatch) as site, begun(site) as slow:
        assert exchange(site, post(LARGE, "Connection: close")).startswith(b"HTTP/1.1 200 ")
        assert is_disconnected(slow)


def test_a_slow_large_body_is_read_while_no_other_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "LARGE_SECONDS", 0.0)
    with one_at_a_time(tmp_path, monkeypatch) as site, begun(site) as slow:
        assert is_reviewed(site)
        assert ended(slow).startswith(b"HTTP/1.1 200 ")


def test_a_disconnected_client_takes_no_large_body_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "LARGE_SECONDS", 60.0)
    monkeypatch.setattr(connection_limits, "WAIT_SECONDS", 0.2)
    with one_at_a_time(tmp_path, monkeypatch) as site, begun(site) as first:
        with site.connect_tls() as gone:
            gone.sendall(post(LARGE))
            until(lambda: len(site.server._large._waiting), "it waits")
        until(lambda: not len(site.server._large._waiting), "it waits no more")
        assert ended(first).startswith(b"HTTP/1.1 200 ")
        until(lambda: not len(site.server._large._holders), "nothing large is held")
        assert exchange(site, post(LARGE, "Connection: close")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("without_garbage_collector")
def test_an_evicted_session_leaves_no_memory_even_before_garbage_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 3 * LARGE_BYTES)
    before = alive(HttpConnection, HttpSession, Connection)
    with serving(tmp_path) as site:
        for _ in range(5):
            with site.connect_tls() as larger, site.connect_tls() as large:
                larger.sendall(post(b" " * (2 * LARGE_BYTES))[:-1])
                until(lambda: site.server._limiter.size > 2 * LARGE_BYTES, "one is held")
                large.sendall(post(b" " * LARGE_BYTES)[:-1])
                assert is_disconnected(larger)
        until(lambda: alive(HttpConnection, HttpSession, Connection) == before, "nothing is left of them")


@pytest.mark.usefixtures("without_garbage_collector")
@pytest.mark.parametrize(
    "sent",
    [
        post(REVIEW, "Connection: close"),
        post(b"{", "Connection: close"),
        post(b"").replace(b"Length: 0", b"Length: %d" % (session.MAX_BODY_BYTES + 1)),
    ],
    ids=["good", "bad", "too long"],
)
def test_a_finished_session_leaves_no_memory_even_before_garbage_collection(tmp_path: Path, sent: bytes) -> None:
    before = alive(HttpConnection, HttpSession, Connection)
    with serving(tmp_path) as site:
        for _ in range(3):
            with site.connect_tls() as peer:
                peer.sendall(sent)
                assert peer.recv(1 << 10).startswith(b"HTTP/1.1 ")
        until(lambda: alive(HttpConnection, HttpSession, Connection) == before, "nothing is left of them")


@pytest.mark.usefixtures("without_garbage_collector")
def test_a_reset_connection_leaves_no_memory_even_before_garbage_collection(tmp_path: Path) -> None:
    before = alive(HttpConnection, HttpSession, Connection)
    with serving(tmp_path) as site:
        for _ in range(3):
            peer = begun(site)
            peer.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            until(lambda: not len(site.server._limiter._slots), "it has gone")
        until(lambda: alive(HttpConnection, HttpSession, Connection) == before, "nothing is left of them")
