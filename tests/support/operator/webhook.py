"""The webhook's server, served for a test, and clients of it."""

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from gkm_operator.admission.certificates.issue import IssuedFiles, issue
from gkm_operator.admission.https.server import AdmissionServer, Validator
from gkm_operator.admission.review import ReviewRequest, ReviewResponse
from gkm_operator.admission.validator import ImageValidator
from support.operator.images import DIGEST, GOOD, FakeImages
from support.operator.reviews import IMAGE, review

SECONDS = 30
REVIEW = json.dumps(review()).encode()


def post(body: bytes, *more: str) -> bytes:
    """Return an AdmissionReview as it goes over the wire."""
    lines = ("POST /validate?timeout=10s HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *more, "", "")
    return "\r\n".join(lines).encode() + body


@dataclass
class Webhook:
    server: AdmissionServer
    issued: IssuedFiles

    def context(self) -> ssl.SSLContext:
        """Return what the API server trusts: nothing but the CA."""
        return ssl.create_default_context(cadata=self.issued.ca_bundle.decode())

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=SECONDS, context=self.context())

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = self.connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def plain(self) -> socket.socket:
        """Connect, and say nothing."""
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=SECONDS)

    def secret(self) -> ssl.SSLSocket:
        """Connect, and shake hands."""
        return self.context().wrap_socket(self.plain(), server_hostname="127.0.0.1")


def true_judge() -> ImageValidator:
    return ImageValidator(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), "enforce")


@contextmanager
def serving(directory: Path, judge: Validator | None = None) -> Iterator[Webhook]:
    issued = issue(directory / "tls", ["127.0.0.1", "gkm-admission.gkm-system.svc"])
    server = AdmissionServer(judge or true_judge(), ("127.0.0.1", 0), issued.certificate, issued.key)
    server.start()
    try:
        yield Webhook(server, issued)
    finally:
        server.close()


def whole(peer: socket.socket) -> bytes:
    """Return all that comes until the end, however it ends."""
    received = bytearray()
    try:
        while part := peer.recv(1 << 16):
            received += part
    except (ConnectionError, ssl.SSLError):
        logging.getLogger(__name__).debug("cut off")
    return bytes(received)


def is_judged(site: Webhook) -> bool:
    status, body = site.ask("POST", "/validate?timeout=10s", REVIEW)
    return (status, json.loads(body)["response"]) == (200, {"uid": "u-1", "allowed": True})


def is_cut_off(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def answers(webhook: Webhook, sent: bytes) -> bytes:
    """Send bytes over TLS, say no more, and return what is answered."""
    with webhook.secret() as peer:
        peer.sendall(sent)
        return whole(peer)


class Patient:
    """Judges once it is allowed to; notes who came."""

    def __init__(self) -> None:
        self.go_on = Event()
        self.came = 0
        self._lock = Lock()

    def review(self, request: ReviewRequest) -> ReviewResponse:
        with self._lock:
            self.came += 1
        self.go_on.wait(SECONDS)
        return ReviewResponse(allowed=bool(request.uid))
