"""Serve pages over HTTP: an event loop in one thread, a bounded number of connections, a deadline for each of them.

Any client may be hostile. A client that sends byte by byte holds one connection until the deadline; when all
connections are in use, the server closes the oldest one for a new one. Kubelet sends its request at once, so its
connection is never the oldest for long. Decision 11 compares the standard library's servers.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from threading import Thread
from typing import Any

from gkm.probes.messages import END_OF_HEAD, MAX_REQUEST_BYTES, TOO_LONG, Page, encode, error_page, parse

CONNECTION_SECONDS = 5.0
"""Limit of seconds of a connection."""
MAX_CONNECTIONS = 32
_BACKLOG = 32
_CHUNK = 4 << 10
_MAX_DISCARDED = 16 * _CHUNK
_STOP_SECONDS = 2.0

_LOG = logging.getLogger(__name__)

Pages = Mapping[str, Callable[[], Page]]
"""{path: function that makes the page}; it runs in the server's thread, so it reads memory only and never waits."""


class PageServer:
    """An HTTP server for a fixed set of pages, such as /healthz and /metrics."""

    def __init__(
        self,
        address: tuple[str, int],
        pages: Pages,
        *,
        seconds: float = CONNECTION_SECONDS,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._address = address
        self._pages = pages
        self._seconds = seconds
        self._limit = connections
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self.port = 0
        """The port of the listening socket; 0 before `start`."""

    def start(self) -> None:
        """Listen on the address and start the server's thread.

        Raises:
            OSError: the address is in use, or not on this machine.
        """
        listener = listen(self._address, _BACKLOG)
        # asyncio reads 256 KiB at a time, if the socket has them.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
        self.port = int(listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, args=(self._loop, listener), name="pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server at once and close open connections. Idempotent."""
        if self._loop is None or self._thread is None:
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        loop.set_exception_handler(_log_error)
        with listener:
            loop.run_until_complete(self._serve(listener))
        loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_REQUEST_BYTES, backlog=_BACKLOG)
        await self._stop.wait()
        server.close()
        # Also connections that asyncio is accepting at this moment.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        await asyncio.sleep(0)  # the transports close their sockets

    def _accept(self, reader: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._limit:
            self._abort(next(iter(self._open)))
        session = asyncio.get_running_loop().create_task(self._serve_client(reader, connection))
        self._open[connection] = session
        # As a callback, because a task that is cancelled before its first step does not run its own code.
        session.add_done_callback(lambda _: self._abort(connection))

    def _abort(self, connection: asyncio.StreamWriter) -> None:
        self._open.pop(connection, None)
        connection.transport.abort()

    async def _serve_client(self, reader: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
        # A deadline that passes, an incomplete request and a client that disconnects end this connection only.
        with suppress(TimeoutError, EOFError, OSError):
            async with asyncio.timeout(self._seconds):
                await _exchange(reader, connection, self._respond)

    def _respond(self, head: bytes) -> bytes:
        request = parse(head)
        if isinstance(request, Page):
            return encode(request)
        make = self._pages.get(request.path)
        if make is None:
            return encode(error_page(HTTPStatus.NOT_FOUND, f"the pages are {', '.join(self._pages)}"))
        try:
            page = make()
        except Exception:  # noqa: BLE001 -- a defect in one page costs that page
            _LOG.exception("page of the health server failed", extra={"path": request.path})
            page = error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log has the cause")
        return encode(page, with_body=request.method == "GET")


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Callable[[bytes], bytes]
) -> None:
    """Read a request and send its response."""
    try:
        response = respond(await reader.readuntil(END_OF_HEAD))
    except asyncio.LimitOverrunError:
        response = encode(TOO_LONG)
    writer.transport.set_write_buffer_limits(0)  # `drain` then waits until all is sent
    writer.write(response)
    await writer.drain()
    writer.write_eof()
    # A socket closed with unread data resets the connection, and the client may lose the response.
    discarded = 0
    while discarded < _MAX_DISCARDED and (part := await reader.read(_CHUNK)):
        discarded += len(part)


def _log_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop: mostly no descriptors are left to accept a client, and the loop retries in a second."""
    _LOG.warning(
        "health server could not serve a connection",
        extra={"reason": f"{context['message']}: {context.get('exception')}"},
    )


def listen(address: tuple[str, int], backlog: int) -> socket.socket:
    """Return a listening socket; an empty host means all addresses, IPv4 and IPv6.

    Raises:
        OSError: the address is in use, or not on this machine.
    """
    host = address[0]
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(address, family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError:
            # The kernel has IPv6 compiled in and switched off.
            return socket.create_server(address, backlog=backlog)
    return socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog)
