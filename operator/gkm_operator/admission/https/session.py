"""The session of one client: TLS in an event loop, HTTP/1.1 above it, and a deadline for each step.

h11 parses; a request that h11 rejects is refused. A body is in memory once: h11 passes on each TLS record as received,
and `HttpConnection` appends it to one buffer. `discard` empties that buffer, even if frames still refer to it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import h11
from gkm.hoststate.logs import fields
from gkm.probes.messages import Page, error_page

from gkm_operator.admission.https.connection_limits import (
    ConnectionLimiter,
    ConnectionSlot,
    LargeBodies,
    SessionStage,
    ThrottledLog,
)

T = TypeVar("T")

CHUNK = 16 << 10
"""Bytes that one read returns at most: one TLS record (RFC 8446, section 5.1)."""

FEED_BYTES = 4 << 10
"""Bytes given to TLS in one step of the event loop. OpenSSL reads on while input contains no application data: when it
read the socket itself, clients that sent only KeyUpdates (27 bytes, RFC 8446, section 4.6.3) blocked the loop for half
a minute."""

_MAX_DISCARDED = 16 << 20
"""Limit of bytes that a client may send after the last response: four times the largest body."""

MAX_BODY_BYTES = 4 << 20
"""An AdmissionReview contains the object twice, and etcd rejects objects above 1.5 MB, managedFields included."""

MAX_HEADER_BYTES = 16 << 10
"""An API server sends some 300 bytes. h11 needs 10 ms for 16 KiB of the shortest lines, and blocks the event loop
meanwhile."""

LARGE_BYTES = 256 << 10
"""Bytes from which a body is large. A review of a cache contains the object twice, with some 10 KiB each."""

SPARE = 8
"""Factor for the memory of a growing bytearray, which over-allocates by one eighth (bytearrayobject.c)."""

RETRY_SECONDS = 1
"""Seconds in the Retry-After header; an API server honors it until its timeout (client-go, rest/with_retry.go)."""

_LOG = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""Seconds for a whole request from its first byte; for the first request from the connection's start."""

WRITE_SECONDS = 5.0
SHUTDOWN_SECONDS = 2.0

IDLE_SECONDS = 120.0
"""Seconds that a connection may be idle between two requests; longer than the 90 after which Go's client closes it."""


class Connection:
    """A client's TLS connection. Every waiting method can be cancelled, and raises OSError when the client disconnects.

    The standard library's own TLS transport allocates 256 KiB for each connection at the start; this one holds only the
    buffers of OpenSSL, some 50 KiB in all.
    """

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        """Wrap the non-blocking socket of a client."""
        self._socket = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        """Perform the TLS handshake; raise OSError (ssl.SSLError) when the two sides agree on no version."""
        await self._until_done(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """Return decrypted data from the client, at most `CHUNK` bytes; b"" when the client has closed."""
        try:
            return await self._until_done(lambda: self._tls.read(CHUNK))
        except ssl.SSLEOFError:  # the client closed without close_notify
            return b""

    async def send(self, data: bytes) -> None:
        """Send all of the data to the client."""
        left = memoryview(data)
        while left:
            left = left[await self._until_done(lambda: self._tls.write(left)) :]  # noqa: B023 -- called before it changes
        await asyncio.sleep(0)  # let other sessions run between the requests of a busy client

    async def shut_down(self) -> None:
        """Close the sending side, and discard input until the client closes too.

        Closing with unread input would reset the connection, and the client might lose the response.
        """
        self._socket.shutdown(socket.SHUT_WR)  # ends TLS too: input is discarded from here on, not decrypted
        discarded = 0
        while discarded < _MAX_DISCARDED and (part := await self._receive(CHUNK)):
            discarded += len(part)

    def has_pending_data(self) -> bool:
        """Return whether the client has sent data that is not read yet."""
        with suppress(OSError):
            return bool(self._incoming.pending or self._socket.recv(1, socket.MSG_PEEK))
        return False

    def close(self) -> None:
        """Close the client's socket at once."""
        self._socket.close()

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                if self._outgoing.pending:  # also a TLS alert that explains the failure
                    loop = asyncio.get_running_loop()
                    await _without_future(loop.sock_sendall(self._socket, self._outgoing.read()))
            if part := await self._receive(FEED_BYTES):
                self._incoming.write(part)
            else:
                self._incoming.write_eof()
            # Let other sessions run between the chunks of a busy client.
            await asyncio.sleep(0)

    async def _receive(self, limit: int) -> bytes:
        return await _without_future(asyncio.get_running_loop().sock_recv(self._socket, limit))


async def _without_future(operation: Awaitable[T]) -> T:
    """Await an operation of the event loop; raise its error without the traceback.

    The traceback refers to the loop's future, and the future to the error. That cycle would keep everything in the
    session's frames alive until the garbage collector runs.
    """
    try:
        return await operation
    except OSError as error:
        raise error.with_traceback(None)  # noqa: B904 -- it is the same error


@dataclass(slots=True)
class HttpRequest:
    """A complete HTTP request. `path` has no query; an API server puts its timeout there."""

    method: str
    path: str
    body: bytes | bytearray

    def take(self) -> bytes | bytearray:
        """Return the body and remove it from the request, so that its memory can be freed while a registry is slow."""
        body, self.body = self.body, b""
        return body


class BadRequest(Exception):
    """A client's HTTP request cannot be read completely; `response` is sent as the last response on the connection."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.response = error_page(status, reason)


class HttpConnection:
    """HTTP/1.1 requests and responses on a connection, in turns. Raises OSError when the client disconnects.

    `reserve_bytes` returns whether that number of bytes may be added. `admit_large` waits until a large body may be
    read, and returns False when too many are being read.
    """

    def __init__(
        self, connection: Connection, reserve_bytes: Callable[[int], bool], admit_large: Callable[[], Awaitable[bool]]
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
        """Wait for the first bytes of the next request; return False when the client closes."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.trailing_data[0]:
            return True
        return await self._receive() > 0

    async def read(self) -> HttpRequest:
        """Read the next HTTP request completely and return it.

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
        """Drop the received body of the current request; no more input is read after it."""
        self._body.clear()

    async def write(self, response: Page, *, is_last: bool) -> None:
        """Send an HTTP response; `is_last` announces that the connection closes after it."""
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

    h11 would join chunks; chunks of one byte cost it 15 µs and their sender six bytes each. API servers send no chunks.
    """
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "send Content-Length, not chunks")
    length = int(headers.get(b"content-length", b"0"))
    if length > MAX_BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"longer than {MAX_BODY_BYTES} bytes")
    return length


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Objects that all client sessions share. Once `closing` is set, each session sends one more response at most."""

    limiter: ConnectionLimiter
    large: LargeBodies
    respond: Callable[[HttpRequest, ConnectionSlot], Awaitable[Page]]
    closing: asyncio.Event
    log: ThrottledLog


class HttpSession:
    """The session of one client of the webhook. It ends by itself, or by `evict`."""

    def __init__(self, connection: Connection, peer: str, shared: SessionContext) -> None:
        self._connection = connection
        self._peer = peer
        self._shared = shared
        self._task: asyncio.Task[None] | None = None
        self._http: HttpConnection | None = None
        self._shutting_down = False

    def start(self) -> asyncio.Task[None] | None:
        """Take a connection slot and start the session; close the connection and return None if no slot is free."""
        slot = self._shared.limiter.acquire(self, _now())
        if slot is None:
            self._connection.close()
            return None
        self._task = asyncio.get_running_loop().create_task(self._run(slot))
        # As a callback, because a task that is cancelled before its first step does not run its own code.
        self._task.add_done_callback(lambda _: self._end(slot))
        return self._task

    def has_pending_data(self) -> bool:
        """Return whether received data will still be read; False after the last response."""
        return not self._shutting_down and self._connection.has_pending_data()

    def evict(self) -> None:
        """Drop the current request, and end the session soon."""
        if self._http is not None:
            self._http.discard()
        if self._task is not None:
            self._task.cancel()

    def _end(self, slot: ConnectionSlot) -> None:
        self._shared.limiter.release(slot)
        self._connection.close()
        if self._http is not None:
            self._http.discard()
        # A cancelled task refers to its error, the error to its frames, and the frames to this session. Without this
        # line the cycle stays until the garbage collector runs, which comes too late under the load of some hundred
        # clients.
        self._task = self._http = None

    async def _run(self, slot: ConnectionSlot) -> None:
        http = self._http = HttpConnection(
            self._connection, partial(self._shared.limiter.reserve_bytes, slot), partial(self._shared.large.enter, slot)
        )
        try:
            refusal = None
            try:
                await self._serve(http, slot)
            except BadRequest as error:
                refusal = error.response
                self._shared.log.warning("HTTPS request refused", peer=self._peer, why=str(error))
            if refusal is not None:
                # Release the input before the response is sent.
                http.discard()
                self._shared.limiter.release_bytes(slot)
                await self._respond_last(http, slot, refusal)
        except ssl.SSLError as error:
            self._shared.log.warning("TLS handshake failed", peer=self._peer, why=str(error))
        except TimeoutError:
            self._shared.log.warning("HTTPS connection of the webhook timed out", peer=self._peer)
        except OSError:
            pass  # the client disconnected
        except Exception:  # noqa: BLE001 -- a defect in one session ends only that session
            _LOG.exception("HTTPS connection of the webhook failed", extra=fields(peer=self._peer))

    async def _serve(self, http: HttpConnection, slot: ConnectionSlot) -> None:
        async with asyncio.timeout(READ_SECONDS):
            await self._connection.handshake()
            request = await http.read()
        while True:
            response = await self._shared.respond(request, slot)
            request.take()  # drop an unread body: its bytes are released below
            slot.enter(SessionStage.ACTIVE, _now())
            self._shared.limiter.release_bytes(slot)
            if http.is_last or self._shared.closing.is_set():
                await self._respond_last(http, slot, response)
                return
            async with asyncio.timeout(WRITE_SECONDS):
                await http.write(response, is_last=False)
            slot.enter(SessionStage.IDLE, _now())
            if self._shared.closing.is_set() or not await self._wait_for_request(http):
                return
            slot.enter(SessionStage.ACTIVE, _now())
            async with asyncio.timeout(READ_SECONDS):
                request = await http.read()

    async def _wait_for_request(self, http: HttpConnection) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                return await http.wait_for_request()
        return False

    async def _respond_last(self, http: HttpConnection, slot: ConnectionSlot, response: Page) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await http.write(response, is_last=True)
        self._shutting_down = True
        slot.enter(SessionStage.IDLE, _now())
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._connection.shut_down()


def _now() -> float:
    return asyncio.get_running_loop().time()
