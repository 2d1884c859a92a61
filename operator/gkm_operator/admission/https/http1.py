"""HTTP/1.1 of one connection: requests read whole and within bounds, answers written. Judges nothing.

What h11 makes of bytes is taken; whatever it refuses, we refuse. A body is held once: h11 hands on each record of TLS
as it came, and the bytes stand in one buffer that grows and that `discard` empties, whoever else refers to it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

import h11

from gkm_operator.admission.https.connection import Connection

MAX_BODY_BYTES = 4 << 20
"""An AdmissionReview holds the object twice, and etcd takes none above 1.5 MB, managedFields included."""

MAX_HEADER_BYTES = 16 << 10
"""An API server sends some 300. h11 takes 10 ms for 16 KiB of the shortest lines, and nobody is served meanwhile."""

LARGE_BYTES = 256 << 10
"""A body beyond it is large. A review has the object of a cache twice, with some 10 KiB each."""

SPARE = 8
"""A bytearray that grows has an eighth more than it needs (bytearrayobject.c)."""

JSON, TEXT = "application/json", "text/plain; charset=utf-8"

RETRY_SECONDS = 1
"""An API server does as Retry-After says, for a POST too, until its time is up (client-go, rest/with_retry.go)."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What is answered."""

    status: HTTPStatus
    body: bytes
    kind: str = TEXT


def error_response(status: HTTPStatus, why: str) -> HttpResponse:
    """Return the answer that says why there is no other."""
    return HttpResponse(status, f"{why}\n".encode())


@dataclass(slots=True)
class HttpRequest:
    """A whole request. `path` is without its query: an API server adds its time-out there."""

    method: str
    path: str
    body: bytes | bytearray

    def take(self) -> bytes | bytearray:
        """Return the body and forget it: it must not be held for as long as a registry is slow."""
        body, self.body = self.body, b""
        return body


class BadRequest(Exception):
    """The request cannot be read to its end: `answer` is the last on this connection."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(answer.body.decode().strip())
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits the bytes that a connection holds.

    `hold` counts bytes and returns whether they may be held. `hold_large` waits until a large body may be read, and
    returns False when there are too many.
    """

    hold: Callable[[int], bool]
    hold_large: Callable[[], Awaitable[bool]]


class HttpConnection:
    """Requests and answers on a connection, in turns. Raises OSError when the client has gone."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self._body = bytearray()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._head = False

    @property
    def last(self) -> bool:
        """Return whether the request was the last: its client said so, or speaks HTTP/1.0."""
        return self._http.their_state is not h11.DONE

    async def begun(self) -> bool:
        """Wait for the beginning of a request; False when the client has ended."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.trailing_data[0]:
            return True
        return await self._receive() > 0

    async def read(self) -> HttpRequest:
        """Return the request.

        Raises:
            Refused: it is none, or longer than may be.
            OSError: the client has gone.
        """
        self._head = False
        event = await self._next()
        if not isinstance(event, h11.Request):
            raise ConnectionResetError("the client ended")
        self._head = event.method == b"HEAD"
        if _length(event) > LARGE_BYTES and not await self._limits.hold_large():
            raise BadRequest(error_response(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests are sent at once"))
        while isinstance(part := await self._next(), h11.Data):
            self._body += part.data
        path, _, _ = event.target.partition(b"?")
        body, self._body = self._body, bytearray()
        return HttpRequest(event.method.decode(), path.decode("ascii", "replace"), body)

    def discard(self) -> None:
        """Let go of what was read of a request. Nothing may be read after that."""
        self._body.clear()

    async def write(self, answer: HttpResponse, *, last: bool) -> None:
        """Write the answer."""
        headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body)))]
        if answer.status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append(("Retry-After", str(RETRY_SECONDS)))
        if last:
            headers.append(("Connection", "close"))
        events = (
            h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase),
            h11.Data(b"" if self._head else answer.body),
            h11.EndOfMessage(),
        )
        await self._connection.send(b"".join(self._http.send(event) or b"" for event in events))

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    proceed = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                    await self._connection.send(proceed or b"")
                await self._receive()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            why = str(error).partition(":")[0]  # behind it h11 quotes what came, which may be long, or a secret
            raise BadRequest(error_response(status, f"no HTTP/1.1 that we read: {why}")) from error
        return event

    async def _receive(self) -> int:
        data = await self._connection.receive()
        if not self._limits.hold(len(data) + len(data) // SPARE):
            raise BadRequest(error_response(HTTPStatus.SERVICE_UNAVAILABLE, "too much is being sent at once"))
        self._http.receive_data(data)
        return len(data)


def _length(request: h11.Request) -> int:
    """Return the length of the body, which must be known before it is read.

    h11 would join chunks for us; those of one byte cost it 15 µs and their sender six bytes. API servers send none.
    """
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        raise BadRequest(error_response(HTTPStatus.LENGTH_REQUIRED, "send Content-Length, not chunks"))
    length = int(headers.get(b"content-length", b"0"))
    if length > MAX_BODY_BYTES:
        raise BadRequest(error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"longer than {MAX_BODY_BYTES} bytes"))
    return length
