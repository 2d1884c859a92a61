"""Connections that end at a deadline whatever trickles in, and that reach no address a registry cannot have.

A read timeout bounds one silence, not a drip: a header line or a TLS record that comes byte by byte would hold a worker
for hours. So every exchange has a timer that shuts its sockets down.

A name is resolved here, its addresses are checked, and exactly those are connected to: a name that resolves to another
address a moment later (DNS rebinding) gains nothing, and no packet goes to an address that is not permitted.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError
from urllib3.response import HTTPResponse
from urllib3.util.connection import create_connection

from gkm.api.errors import GKMError, Reason
from gkm.api.remedies import Remedy
from gkm.images.registries.host_rules import HostRules

MAX_ADDRESSES = 16
"""So many addresses of a name are tried: whoever owns it may list hundreds that never answer."""


@dataclass(slots=True)
class _Exchange:
    """What holds for the connections of this thread at the moment."""

    rules: HostRules
    deadline: float
    stall: float
    sockets: list[socket.socket] = field(default_factory=list)
    expired: bool = False

    def watch(self, connection: socket.socket) -> None:
        # A duplicate: TLS takes the original over, and a shutdown of either ends both.
        self.sockets.append(socket.socket(fileno=os.dup(connection.fileno())))

    def shut_down(self) -> None:
        self.expired = True  # before the first socket ends: whoever notices that asks why
        for watched in self.sockets:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for watched in self.sockets:
            watched.close()


_thread_local = threading.local()


@contextmanager
def exchange(deadline: float, *, rules: HostRules, stall: float) -> Iterator[None]:
    """End what the connections of this thread do at `deadline` (time.monotonic()), a standstill after `stall` seconds.

    `rules` say which hosts may lie at an address that is not public; what counts is the address, however it is spelt.
    """
    current = _Exchange(rules, deadline, stall)
    timer = threading.Timer(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX), current.shut_down)
    timer.daemon = True
    timer.start()
    outer = getattr(_thread_local, "exchange", None)
    _thread_local.exchange = current
    try:
        yield
    finally:
        _thread_local.exchange = outer
        timer.cancel()
        timer.join()  # at most one shutdown: after this no socket of ours is touched any more
        current.close()


def timed_out() -> bool:
    """Return whether the exchange of this thread came to its deadline, so that its sockets were shut down."""
    current: _Exchange | None = getattr(_thread_local, "exchange", None)
    return current is not None and current.expired


class _DeadlineConnection(HTTPConnection):
    """What both kinds of connection do."""

    def _new_conn(self) -> socket.socket:
        current: _Exchange | None = getattr(_thread_local, "exchange", None)
        if current is None:
            raise AssertionError("a connection outside of an exchange")
        # A proxy is an address that the administrator chose; what it reaches is for it to say.
        new_socket = super()._new_conn() if self.proxy else self._checked(current)
        current.watch(new_socket)
        # Sending is under the socket's own timeout, until here that of connecting: an upload may pause longer.
        new_socket.settimeout(current.stall)
        return new_socket

    def _checked(self, current: _Exchange) -> socket.socket:
        """Connect to the first address of the host that is permitted and answers, raising what urllib3 raises."""
        found = self._resolved()
        permitted = [address for address in found if current.rules.permit(self.host, self.port, address)]
        if not permitted:
            raise not_public(f"{self.host[:100]} leads to")
        failure: Exception = NewConnectionError(self, "no address")
        for address in permitted[:MAX_ADDRESSES]:
            left = current.deadline - time.monotonic()
            timeout = min(float(self.timeout or left), left)
            if timeout <= 0:
                break
            try:
                return create_connection((address, self.port), timeout, self.source_address, self.socket_options)
            except TimeoutError:
                failure = ConnectTimeoutError(self, f"{address} did not answer within {timeout:g} s")
            except OSError as error:
                failure = NewConnectionError(self, f"{address}: {error}")
        raise failure

    def _resolved(self) -> list[str]:
        """Return the addresses of the host, each once."""
        try:
            self.host.encode("idna")
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise LocationParseError(self.host) from error
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        current: _Exchange | None = getattr(_thread_local, "exchange", None)
        if current is not None and self.sock is not None:
            current.watch(self.sock)  # one from the pool was made in another exchange
        return super().getresponse()


class _DeadlineTLSConnection(_DeadlineConnection, HTTPSConnection):
    pass


class DeadlinePool(HTTPConnectionPool):
    """urllib3's pool, of watched connections."""

    ConnectionCls = _DeadlineConnection


class DeadlineTLSPool(HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = _DeadlineTLSConnection


def not_public(host_is: str) -> GKMError:
    """Return the error for a host at an address that the configuration does not open, whichever it is."""
    return GKMError(
        Reason.NOT_ALLOWED,
        f"{host_is} an address of this machine or of a private network, not of a public registry",
        Remedy.NAME_HOST,
    )
