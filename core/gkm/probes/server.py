"""The server: one thread, a bounded number of connections, and a deadline for each, however slowly its client is.

Every client is taken for hostile. Who drips holds one of few places until the deadline; when all are held, the oldest
gives way: kubelet sends its request at once, so it is never the oldest for long.
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
"""For all of one connection, from when it is taken."""
MAX_CONNECTIONS = 32
_BACKLOG = 32
_CHUNK = 4 << 10
_MAX_DISCARDED = 16 * _CHUNK
_STOP_SECONDS = 2.0
_ACCEPT_RETRY_SECONDS = 0.1

_LOG = logging.getLogger(__name__)

Pages = Mapping[str, Callable[[], Page]]
"""{path: what makes the page}; called in the server's thread, so it must come from memory, and wait for nobody."""


class PageServer:
    """Serves pages until `close`."""

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
        """Return the port that is listened on; 0 before `start`."""
        return int(self._listener.getsockname()[1]) if self._listener else 0

    def start(self) -> None:
        """Listen, and serve in a thread.

        Raises:
            OSError: the address is taken, or not ours.
        """
        self._listener = listen(self._address, _BACKLOG)
        self._listener.settimeout(0.0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """End at once: connections under way are cut off. Idempotent."""
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
        """Return how long nothing happens by itself: until the oldest connection is late, or for ever."""
        oldest = next(iter(self._open.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic())

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            # Out of descriptors, mostly: the client stays in the backlog, and there is room when others have ended.
            if not self._accept_failing:
                _LOG.warning("no connection can be taken", extra={"why": str(error)})
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
        if found is None:  # it was ended for another in this very round
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
        # All have the same time, so the first in is the first late.
        while (oldest := next(iter(self._open.items()), None)) is not None and oldest[1].deadline <= now:
            self._close(oldest[0])

    def _respond(self, head: bytes) -> bytes:
        request = parse(head)
        if isinstance(request, Page):
            return encode(request)
        make = self._pages.get(request.path)
        if make is None:
            return encode(error_page(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._pages)}"))
        try:
            page = make()
        except Exception:  # noqa: BLE001 -- a defect in one page costs that page
            _LOG.exception("page not made", extra={"path": request.path})
            page = error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "this page cannot be made; the log says why")
        return encode(page, with_body=request.method == "GET")


@dataclass(frozen=True, slots=True)
class _OpenConnection:
    """A connection under way: `conversation` yields what it waits for."""

    session: Iterator[int]
    deadline: float


def _http_session(peer: socket.socket, respond: Callable[[bytes], bytes]) -> Iterator[int]:
    """Yield the event that is waited for, until all is said."""
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
    # Closed with something unread, the connection would be reset, and the client might lose the answer.
    discarded = 0
    while discarded < _MAX_DISCARDED:
        yield selectors.EVENT_READ
        part = peer.recv(_CHUNK)
        if not part:
            return
        discarded += len(part)


def listen(address: tuple[str, int], backlog: int) -> socket.socket:
    """Return a socket that listens; without a host on every address, of both families where there are two.

    Raises:
        OSError: the address is taken, or not ours.
    """
    host = address[0]
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(address, family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError:
            # IPv6 is compiled in, and switched off.
            return socket.create_server(address, backlog=backlog)
    return socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog)
