"""The HTTPS server: responses, certificate, start and end."""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from gkm_operator.admission.https import session
from gkm_operator.admission.https.server import AdmissionServer, ServerCertificate
from gkm_operator.admission.https.session import HttpSession
from gkm_operator.admission.review import ReviewRequest, ReviewResponse
from support.host.waiting import scaled, until
from support.operator.issued import issue
from support.operator.webhook import (
    REVIEW,
    BlockingValidator,
    Webhook,
    exchange,
    is_disconnected,
    is_reviewed,
    post,
    read_to_end,
    reviewers,
    serving,
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Webhook]:
    with serving(tmp_path) as webhook:
        yield webhook


def test_a_review_is_answered(site: Webhook) -> None:
    assert is_reviewed(site)


def test_a_connection_is_used_again(site: Webhook) -> None:
    connection = site.connection()
    connection.connect()
    first = connection.sock
    for _ in range(5):
        connection.request("POST", "/validate", REVIEW)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["response"]["allowed"]) == (200, True)
        assert connection.sock is first
    connection.close()


def test_the_server_is_ready_once_ready_is_set(site: Webhook) -> None:
    assert site.ask("GET", "/healthz") == (200, b"ok\n")
    assert site.ask("GET", "/readyz")[0] == 503
    site.server.ready.set()
    assert site.ask("GET", "/readyz") == (200, b"ok\n")
    site.server.close()
    assert not site.server.ready.is_set()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/validate", b"", 405),
        ("POST", "/healthz", b"x", 405),
        ("POST", "/", b"", 404),
        ("HEAD", "/", b"", 404),
        ("HEAD", "/healthz", b"", 200),
        ("POST", "/validate", b"", 400),
        ("POST", "/validate", b"{}", 400),
        ("POST", "/validate", b"\x00" * 100, 400),
    ],
)
def test_a_request_that_is_not_a_review_gets_an_error_status(
    site: Webhook, method: str, path: str, body: bytes, status: int
) -> None:
    assert site.ask(method, path, body)[0] == status


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"") + b"0\r\n\r\n", 411),
        (post(REVIEW, "Content-Length: 1"), 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * session.MAX_HEADER_BYTES, 431),
        (b"nothing of the kind\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404),
    ],
    ids=["chunks", "two lengths", "no host", "a long head", "no HTTP", "HTTP/2"],
)
def test_an_unreadable_request_is_the_last_of_its_connection(site: Webhook, sent: bytes, status: int) -> None:
    assert exchange(site, sent).startswith(b"HTTP/1.1 %d " % status)
    assert is_reviewed(site)


def test_a_body_beyond_the_bound_is_not_read_and_its_sender_still_reads_why(site: Webhook) -> None:
    connection = site.connection()
    connection.request("POST", "/validate", b" " * (session.MAX_BODY_BYTES + 1))
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_may_wait_for_100_continue(site: Webhook) -> None:
    head, _, body = post(REVIEW, "Expect: 100-continue").partition(b"\r\n\r\n")
    with site.connect_tls() as peer:
        peer.sendall(head + b"\r\n\r\n")
        assert peer.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
        peer.sendall(body)
        assert peer.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order(site: Webhook) -> None:
    assert exchange(site, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nx y\r\n\r\n").endswith(
        b" request: illegal request line\n"
    )
    told = exchange(site, post(REVIEW) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + post(b"", "Connection: close"))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200", b"400"]


def test_a_defect_in_a_review_fails_one_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ReviewRequest) -> ReviewResponse:
        raise ValueError(f"a secret of {request.uid}")

    with serving(tmp_path, broken) as site:
        status, body = site.ask("POST", "/validate", REVIEW)
        assert (status, b"secret" in body) == (500, False)
        assert site.ask("GET", "/healthz")[0] == 200
    assert [record.message for record in caplog.records if record.exc_info] == ["admission review failed"]


def test_a_defect_in_accepting_a_connection_fails_one_connection(
    site: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(HttpSession, "start", lambda _: 1 // 0)
        with site.connect_plain() as peer:
            assert is_disconnected(peer)
    assert is_reviewed(site)
    assert [record.message for record in caplog.records] == ["HTTPS connection not accepted"]


def test_a_new_certificate_is_served_without_a_restart(site: Webhook) -> None:
    old = site.issued
    site.issued = issue(old.certificate.parent, ["127.0.0.1"])
    assert site.ask("GET", "/healthz")[0] == 200
    site.issued = old
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        site.ask("GET", "/healthz")


def test_the_old_pair_serves_on_with_a_warning_while_certificate_and_key_do_not_match(
    site: Webhook, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = issue(tmp_path / "other", ["127.0.0.1"])
    site.issued.key.write_bytes(other.key.read_bytes())
    assert site.ask("GET", "/healthz")[0] == 200
    site.issued.key.unlink()
    assert site.ask("GET", "/healthz")[0] == 200
    assert [record.message for record in caplog.records] == [
        "webhook certificate not loaded, the former one stays in use"
    ]


def test_an_encrypted_key_is_an_error_without_a_prompt(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["127.0.0.1"])
    assert ServerCertificate(issued.certificate, issued.key).context()
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    issued.key.write_bytes(key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"x")))
    with pytest.raises(ssl.SSLError, match="PEM lib"):
        ServerCertificate(issued.certificate, issued.key)


def test_closing_waits_only_for_requests_in_review(tmp_path: Path) -> None:
    validator = BlockingValidator()
    with (
        serving(tmp_path, validator.review) as site,
        site.connect_tls() as judged,
        site.connect_tls() as idle,
        ThreadPoolExecutor(1) as pool,
    ):
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        judged.sendall(post(REVIEW))
        until(lambda: validator.calls, "it is judged")
        closed = pool.submit(site.server.close)
        assert is_disconnected(idle)
        assert not closed.done()
        validator.release.set()
        told = read_to_end(judged)
        assert told.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close\r\n" in told
        closed.result(scaled(30))
        with pytest.raises(ConnectionRefusedError):
            site.connect_plain()


def test_closing_is_idempotent_and_safe_before_the_start(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        site.server.close()
        site.server.close()
        unstarted = AdmissionServer(reviewers(), ("127.0.0.1", 0), site.issued.certificate, site.issued.key)
        unstarted.close()
        assert unstarted.port == 0


def test_the_port_is_in_use_until_the_server_closes(site: Webhook) -> None:
    address = ("127.0.0.1", site.server.port)
    again = AdmissionServer(reviewers(), address, site.issued.certificate, site.issued.key)
    with pytest.raises(OSError, match=r"in use"):
        again.start()
    site.server.close()
    again.start()
    again.close()


def test_without_a_host_every_address_is_served(site: Webhook) -> None:
    server = AdmissionServer(reviewers(), ("", 0), site.issued.certificate, site.issued.key)
    server.start()
    try:
        assert Webhook(server, site.issued).ask("GET", "/healthz")[0] == 200
    finally:
        server.close()


def test_a_client_that_disconnects_halfway_affects_no_other(site: Webhook) -> None:
    for sent in (b"", b"POST /validate HTTP/1.1\r\n", post(REVIEW)[:-1], post(REVIEW)):
        with site.connect_tls() as peer:
            peer.sendall(sent)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert is_reviewed(site)
    until(lambda: not site.server._limiter._slots, "nobody is left")
