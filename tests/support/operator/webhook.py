"""The webhook's server, served for a test, and clients of it."""

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock

from gkm_operator.admission.https.server import AdmissionServer, Reviewer
from gkm_operator.admission.review import ReviewRequest, ReviewResponse
from gkm_operator.admission.validator import ImageValidator, review_cache
from support.host.waiting import scaled
from support.operator.images import DIGEST, GOOD, FakeImages
from support.operator.issued import IssuedFiles, issue
from support.operator.reviews import IMAGE, review

SECONDS = scaled(30)
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

    def connect_plain(self) -> socket.socket:
        """Connect without sending anything."""
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=SECONDS)

    def connect_tls(self) -> ssl.SSLSocket:
        """Connect, and shake hands."""
        return self.context().wrap_socket(self.connect_plain(), server_hostname="127.0.0.1")


Decide = Callable[[ReviewRequest], ReviewResponse]


def image_validator() -> ImageValidator:
    return ImageValidator(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), "enforce")


def reviewers(decide: Decide | None = None) -> dict[str, Reviewer]:
    """Return the reviewer of caches by its path."""
    return {"/validate": partial(review_cache, decide or image_validator().review)}


@contextmanager
def serving(
    directory: Path, decide: Decide | None = None, more: Mapping[str, Reviewer] | None = None
) -> Iterator[Webhook]:
    issued = issue(directory / "tls", ["127.0.0.1", "gkm-admission.gkm-system.svc"])
    served = reviewers(decide) | dict(more or {})
    server = AdmissionServer(served, ("127.0.0.1", 0), issued.certificate, issued.key)
    server.start()
    try:
        yield Webhook(server, issued)
    finally:
        server.close()


def read_to_end(peer: socket.socket) -> bytes:
    """Return all that comes until the end, however it ends."""
    received = bytearray()
    try:
        while part := peer.recv(1 << 16):
            received += part
    except (ConnectionError, ssl.SSLError):
        logging.getLogger(__name__).debug("cut off")
    return bytes(received)


def is_reviewed(site: Webhook) -> bool:
    status, body = site.ask("POST", "/validate?timeout=10s", REVIEW)
    return (status, json.loads(body)["response"]) == (200, {"uid": "u-1", "allowed": True})


def is_disconnected(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def exchange(webhook: Webhook, sent: bytes) -> bytes:
    """Send bytes over TLS, and return all of the response."""
    with webhook.connect_tls() as peer:
        peer.sendall(sent)
        return read_to_end(peer)


class BlockingValidator:
    """Blocks every review until released; counts the requests."""

    def __init__(self) -> None:
        self.release = Event()
        self.calls = 0
        self._lock = Lock()

    def review(self, request: ReviewRequest) -> ReviewResponse:
        with self._lock:
            self.calls += 1
        self.release.wait(SECONDS)
        return ReviewResponse(allowed=bool(request.uid))
