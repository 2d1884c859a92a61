"""A request as kubelet and Prometheus send it, and its answer: pure. One request a connection, no body, no header read.

RFC 9112. What is more than that is refused: nobody who may ask here needs it.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

MAX_REQUEST_BYTES = 8 << 10
"""Kubelet and Prometheus send a few hundred bytes; headers that a person's curl adds fit as well."""

END_OF_HEAD = b"\r\n\r\n"
TEXT = "text/plain; charset=utf-8"

_REQUEST_LINE = re.compile(rb"(?P<method>[A-Z]{1,16}) (?P<path>/[!->@-~]{0,255})(?:\?[!-~]{0,1023})? HTTP/1\.[01]\Z")


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered: `status` may be any that carries a body."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What is asked: `path` is without its query."""

    method: str
    path: str


def parse(head: bytes) -> PageRequest | Page:
    """Return the request that begins with `head`, or the page that refuses it."""
    if len(head) > MAX_REQUEST_BYTES:
        return error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {MAX_REQUEST_BYTES} bytes are read")
    found = _REQUEST_LINE.match(head.partition(b"\r\n")[0])
    if found is None:
        return error_page(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    request = PageRequest(found["method"].decode(), found["path"].decode())
    if request.method not in ("GET", "HEAD"):
        return error_page(HTTPStatus.METHOD_NOT_ALLOWED, "pages here are read by GET")
    return request


def error_page(status: HTTPStatus, why: str) -> Page:
    """Return a page that says why there is none."""
    return Page(f"{why}\n".encode(), status)


def encode(page: Page, *, with_body: bool = True) -> bytes:
    """Return the bytes of an answer; the connection ends with it."""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{'Allow: GET, HEAD' + chr(13) + chr(10) if page.status is HTTPStatus.METHOD_NOT_ALLOWED else ''}"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")
