"""How the testbed's registry misbehaves on request: a fault is a value, chosen by method and path."""

import gzip
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ALWAYS = 1 << 30


class Answer(NamedTuple):
    """What the registry is about to send."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Fault:
    """One misbehaviour for requests whose path (with query) matches the regular expression `path`.

    The first `skip` matches are answered properly, then `times` are spoiled.
    """

    path: str
    change: Callable[[Answer], Answer] = field(default=lambda answer: answer)
    """What becomes of the answer; a Content-Length that `change` sets is sent as it is, however wrong."""
    methods: frozenset[str] = frozenset({"GET", "HEAD"})
    times: int = ALWAYS
    skip: int = 0
    cut_after: int | None = None
    """Send so many bytes of the body, then close the connection."""
    reset: bool = False
    """Cut by a reset (RST), which throws away what was on its way, not by an orderly end."""
    stall_after: int | None = None
    """Send so many bytes of the body, then wait `stall_seconds`, then the rest; -1: wait before the headers."""
    stall_seconds: float = 3600.0
    drip: tuple[int, float] | None = None
    """(bytes, seconds): the body in pieces with a pause before each."""
    drip_headers: tuple[int, float] | None = None
    """The same for status line and headers."""
    announce_length: bool = True
    """False: no Content-Length; the body ends where the connection does."""

    def matches(self, method: str, path: str) -> bool:
        return method in self.methods and re.search(self.path, path) is not None


def flipped(data: bytes) -> bytes:
    """Return `data` with its middle byte changed and its length kept."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x01]) + data[middle + 1 :]


def cached(path: str, seconds: float) -> Fault:
    """Answers as a cache before the registry gives them: each stays the same for so long, also that there is none.

    For a path of one resource.
    """
    kept: list[tuple[float, Answer]] = []

    def from_cache(answer: Answer) -> Answer:
        if not kept or time.monotonic() - kept[0][0] >= seconds:
            kept[:] = [(time.monotonic(), answer)]
        return kept[0][1]

    return Fault(path, from_cache)


def tampered(path: str, how: Callable[[bytes], bytes] = flipped) -> Fault:
    """Other bytes than were stored; headers still describe the stored ones, apart from the length."""
    return Fault(path, lambda answer: answer._replace(body=how(answer.body)), methods=frozenset({"GET"}))


def truncated(path: str, after: int, *, times: int = ALWAYS) -> Fault:
    """The connection ends after `after` bytes of the body, whatever Content-Length said."""
    return Fault(path, methods=frozenset({"GET"}), cut_after=after, times=times)


def reset(path: str, after: int, *, times: int = ALWAYS) -> Fault:
    """The connection is reset when `after` bytes of the body were sent."""
    return Fault(path, methods=frozenset({"GET"}), cut_after=after, reset=True, times=times)


def wrong_length(path: str, length: int) -> Fault:
    """Content-Length says `length`; the whole body is sent."""
    return Fault(path, with_headers({"Content-Length": str(length)}))


def without_length(path: str, *, cut_after: int | None = None) -> Fault:
    """No Content-Length, so a truncated body looks like a whole one."""
    return Fault(path, methods=frozenset({"GET"}), announce_length=False, cut_after=cut_after)


def overlong(path: str, extra: bytes = b"\0" * 1024) -> Fault:
    """More bytes than the descriptor said, properly announced."""
    return tampered(path, lambda body: body + extra)


def stalled(path: str, after: int = -1, seconds: float = 3600.0, *, times: int = ALWAYS) -> Fault:
    """Silence: after `after` bytes of the body, or (-1) before the first byte of the answer."""
    return Fault(path, stall_after=after, stall_seconds=seconds, times=times)


def dripping(path: str, piece: int = 1, pause: float = 0.2) -> Fault:
    """A body that comes in `piece` bytes every `pause` seconds."""
    return Fault(path, methods=frozenset({"GET"}), drip=(piece, pause))


def status(path: str, code: int, *, times: int = ALWAYS, headers: Mapping[str, str] | None = None) -> Fault:
    """An error such as 429 or 503, `times` times; `headers` may hold Retry-After."""
    body = b'{"errors":[{"code":"UNKNOWN","message":"the testbed was asked to answer this"}]}'
    return Fault(path, lambda _: Answer(code, dict(headers or {}), body), methods=ANY_METHOD, times=times)


def redirected(path: str, url: str, code: int = 307) -> Fault:
    """A redirect to `url`, as registries do for blobs."""
    return Fault(path, lambda _: Answer(code, {"Location": url}, b""))


def wrong_digest_header(path: str, digest: str = "sha256:" + "0" * 64) -> Fault:
    """The right bytes under another Docker-Content-Digest."""
    return Fault(path, with_headers({"Docker-Content-Digest": digest}))


def content_encoded(path: str, body: bytes | None = None) -> Fault:
    """Content-Encoding: gzip that nobody asked for; `body` (or the stored bytes) is what it inflates to."""

    def change(answer: Answer) -> Answer:
        packed = gzip.compress(answer.body if body is None else body, mtime=0)
        return answer._replace(headers={**answer.headers, "Content-Encoding": "gzip"}, body=packed)

    return Fault(path, change, methods=frozenset({"GET"}))


def with_headers(headers: Mapping[str, str]) -> Callable[[Answer], Answer]:
    """Return a change that sets headers."""
    return lambda answer: answer._replace(headers={**answer.headers, **headers})


ANY_METHOD = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
