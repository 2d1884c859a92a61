"""Parse a request of kubelet or Prometheus (RFC 9112) and encode the response. Pure.

A connection carries one request; its body and headers are not read. All other requests are refused.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

MAX_REQUEST_BYTES = 8 << 10
"""Limit of bytes of a request: kubelet and Prometheus send a few hundred."""

END_OF_HEAD = b"\r\n\r\n"
TEXT = "text/plain; charset=utf-8"

_REQUEST_LINE = re.compile(rb"(?P<method>[A-Z]{1,16}) (?P<path>/[!->@-~]{0,255})(?:\?[!-~]{0,1023})? HTTP/1\.[01]\Z")


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP response with a body, for kubelet, Prometheus or the API server."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An HTTP request of kubelet or Prometheus; `path` has no query."""

    method: str
    path: str


def parse(head: bytes) -> PageRequest | Page:
    """Parse the beginning of an HTTP request; return it, or the error page to answer with."""
    match = _REQUEST_LINE.match(head.partition(b"\r\n")[0])
    if match is None:
        return error_page(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request")
    request = PageRequest(match["method"].decode(), match["path"].decode())
    if request.method not in ("GET", "HEAD"):
        return error_page(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD")
    return request


def error_page(status: HTTPStatus, reason: str) -> Page:
    """Return an error page with this status and reason."""
    return Page(f"{reason}\n".encode(), status)


TOO_LONG = error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request has at most {MAX_REQUEST_BYTES} bytes")
"""The answer to a request that exceeds MAX_REQUEST_BYTES."""


def encode(page: Page, *, with_body: bool = True) -> bytes:
    """Return an HTTP response as bytes; the connection closes after it."""
    allow = "Allow: GET, HEAD\r\n" if page.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n{allow}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")
