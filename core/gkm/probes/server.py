"""Serve pages over HTTP: one thread, a bounded number of connections, and a deadline for each connection.

Any client may be hostile. A client that sends byte by byte holds one connection until the deadline; when all
connections are in use, the server closes the oldest one for a new one. Kubelet sends its request at once, so its
connection is never the oldest for long. Decision 11 compares this event loop with the standard library's servers.
"""

import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from threading import Thread

from gkm.probes.messages import END_OF_HEAD, MAX_REQUEST_BYTES, Page, encode, error_page, parse

CONNECTION_SECONDS = 5.0
"""For a whole connection, from its acceptance."""
MAX_CONNECTIONS = 32
_BACKLOG = 32
_CHUNK = 4 << 10
_MAX_DISCARDED = 16 * _CHUNK
_STOP_SECONDS = 2.0
_ACCEPT_RETRY_SECONDS = 0.1

_LOG = logging.getLogger(__name__)

Pages = Mapping[str, Callable[[], Page]]
"""{path: function that makes the page}; it runs in the server's thread, so it reads memory only and never waits."""


class PageServer:
    """Serve pages until `close`."""

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
        self._open: dict[socket.socket, _OpenConnection] = {}
        self._accept_failing = False
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        self._thread = Thread(target=self._serve, name="pages", daemon=True)

    @property
    def port(self) -> int:
        """Return the port of the listening socket; 0 before `start`."""
        return int(self._listener.getsockname()[1]) if self._listener else 0

    def start(self) -> None:
        """Listen, and serve in a thread.

        Raises:
            OSError: the address is in use, or not one of this machine.
        """
        self._listener = listen(self._address, _BACKLOG)
        self._listener.settimeout(0.0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """Stop at once, and cut off open connections. Idempotent."""
        with suppress(OSError):
            self._wake.send(b"x")
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._selector.close()
        for end in (self._wake, self._woken, self._listener):
            if end is not None:
                end.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout()):
                if key.fileobj is self._woken:
                    for connection in list(self._open):
                        self._close(connection)
                    return
                if key.fileobj is self._listener:
                    self._accept(self._listener)
                elif isinstance(key.fileobj, socket.socket):
                    self._advance(key.fileobj)
            self._close_expired()

    def _timeout(self) -> float | None:
        """Return the seconds until the deadline of the oldest connection; None without a connection."""
        oldest = next(iter(self._open.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic())

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            # Mostly no descriptors are left: the client stays in the backlog until other connections have ended.
            if not self._accept_failing:
                _LOG.warning("accept failed", extra={"reason": str(error)})
            self._accept_failing = True
            time.sleep(_ACCEPT_RETRY_SECONDS)
            return
        self._accept_failing = False
        connection.settimeout(0.0)
        if len(self._open) >= self._limit:
            self._close(next(iter(self._open)))
        self._open[connection] = _OpenConnection(
            _http_session(connection, self._respond), time.monotonic() + self._seconds
        )
        self._selector.register(connection, selectors.EVENT_READ)
        self._advance(connection)

    def _advance(self, connection: socket.socket) -> None:
        found = self._open.get(connection)
        if found is None:  # closed for another connection in this round
            return
        try:
            self._selector.modify(connection, next(found.session))
        except (StopIteration, OSError):
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        del self._open[connection]
        self._selector.unregister(connection)
        connection.close()

    def _close_expired(self) -> None:
        now = time.monotonic()
        # All have the same time limit, so the first connection has the first deadline.
        while (oldest := next(iter(self._open.items()), None)) is not None and oldest[1].deadline <= now:
            self._close(oldest[0])

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
            _LOG.exception("page failed", extra={"path": request.path})
            page = error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log has the cause")
        return encode(page, with_body=request.method == "GET")


@dataclass(frozen=True, slots=True)
class _OpenConnection:
    """A connection; `session` yields the event that it waits for."""

    session: Iterator[int]
    deadline: float


def _http_session(peer: socket.socket, respond: Callable[[bytes], bytes]) -> Iterator[int]:
    """Read a request and send its response; yield the event to wait for before each step."""
    head = bytearray()
    while END_OF_HEAD not in head and len(head) <= MAX_REQUEST_BYTES:
        yield selectors.EVENT_READ
        part = peer.recv(_CHUNK)
        if not part:
            return
        head += part
    unsent = memoryview(respond(bytes(head)))
    while unsent:
        yield selectors.EVENT_WRITE
        unsent = unsent[peer.send(unsent) :]
    peer.shutdown(socket.SHUT_WR)
    # A socket closed with unread data resets the connection, and the client may lose the response.
    discarded = 0
    while discarded < _MAX_DISCARDED:
        yield selectors.EVENT_READ
        part = peer.recv(_CHUNK)
        if not part:
            return
        discarded += len(part)


def listen(address: tuple[str, int], backlog: int) -> socket.socket:
    """Return a listening socket; without a host for every address, of both families where the machine has both.

    Raises:
        OSError: the address is in use, or not one of this machine.
    """
    host = address[0]
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(address, family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError:
            # The kernel has IPv6 compiled in and switched off.
            return socket.create_server(address, backlog=backlog)
    return socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog)
