"""HTTP/1.1 on one connection: reads whole requests within limits and writes responses.

h11 parses; a request that h11 rejects is refused. A body is in memory once: h11 passes on each TLS record as received,
and `HttpConnection` appends it to one buffer. `discard` empties that buffer, whichever frames still refer to it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

import h11
from gkm.probes.messages import Page, error_page

from gkm_operator.admission.https.connection import Connection

MAX_BODY_BYTES = 4 << 20
"""An AdmissionReview contains the object twice, and etcd rejects objects above 1.5 MB, managedFields included."""

MAX_HEADER_BYTES = 16 << 10
"""An API server sends some 300 bytes. h11 needs 10 ms for 16 KiB of the shortest lines, and blocks the event loop
meanwhile."""

LARGE_BYTES = 256 << 10
"""Size from which a body counts as large. A review contains the object of a cache twice, with some 10 KiB each."""

SPARE = 8
"""A growing bytearray over-allocates by one eighth (bytearrayobject.c)."""

RETRY_SECONDS = 1
"""An API server honors Retry-After, for a POST too, until its timeout (client-go, rest/with_retry.go)."""


@dataclass(slots=True)
class HttpRequest:
    """A whole request. `path` excludes the query: an API server puts its timeout there."""

    method: str
    path: str
    body: bytes | bytearray

    def take(self) -> bytes | bytearray:
        """Return the body and drop it from the request, so that a slow registry does not keep it in memory."""
        body, self.body = self.body, b""
        return body


class BadRequest(Exception):
    """The request cannot be read to its end; `response` is the last one on this connection."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.response = error_page(status, reason)


class HttpConnection:
    """Requests and responses on a connection, in turns. Raises OSError when the client disconnects.

    `reserve_bytes` returns whether that number of bytes may be added. `admit_large` waits until a large body may be
    read, and returns False when too many are being read.
    """

    def __init__(
        self,
        connection: Connection,
        reserve_bytes: Callable[[int], bool],
        admit_large: Callable[[], Awaitable[bool]],
    ) -> None:
        self._connection = connection
        self._reserve_bytes = reserve_bytes
        self._admit_large = admit_large
        self._body = bytearray()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._head = False

    @property
    def is_last(self) -> bool:
        """Return whether the request was the last: the client requested close, or speaks HTTP/1.0."""
        return self._http.their_state is not h11.DONE

    async def wait_for_request(self) -> bool:
        """Wait for the first bytes of a request; return False when the client closes."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.trailing_data[0]:
            return True
        return await self._receive() > 0

    async def read(self) -> HttpRequest:
        """Return the request.

        Raises:
            BadRequest: the request is malformed or too long.
            OSError: the client disconnected.
        """
        self._head = False
        event = await self._next()
        if not isinstance(event, h11.Request):
            raise ConnectionResetError("the client disconnected")
        self._head = event.method == b"HEAD"
        if _length(event) > LARGE_BYTES and not await self._admit_large():
            raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests are sent at once")
        while isinstance(part := await self._next(), h11.Data):
            self._body += part.data
        path, _, _ = event.target.partition(b"?")
        body, self._body = self._body, bytearray()
        return HttpRequest(event.method.decode(), path.decode("ascii", "replace"), body)

    def discard(self) -> None:
        """Drop the input of the current request. Nothing may be read afterwards."""
        self._body.clear()

    async def write(self, response: Page, *, is_last: bool) -> None:
        """Write the response."""
        headers = [("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))]
        if response.status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append(("Retry-After", str(RETRY_SECONDS)))
        if is_last:
            headers.append(("Connection", "close"))
        events = (
            h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase),
            h11.Data(b"" if self._head else response.body),
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
            reason = str(error).partition(":")[0]  # after the colon h11 quotes the input, which may be long or secret
            raise BadRequest(status, f"not a valid HTTP/1.1 request: {reason}") from error
        return event

    async def _receive(self) -> int:
        data = await self._connection.receive()
        if not self._reserve_bytes(len(data) + len(data) // SPARE):
            raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, "the requests in memory are too large together")
        self._http.receive_data(data)
        return len(data)


def _length(request: h11.Request) -> int:
    """Return the length of the body, which must be known before it is read.

    h11 would join chunks; chunks of one byte cost it 15 µs and their sender six bytes each. API servers send none.
    """
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "send Content-Length, not chunks")
    length = int(headers.get(b"content-length", b"0"))
    if length > MAX_BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"longer than {MAX_BODY_BYTES} bytes")
    return length
