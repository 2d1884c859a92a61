"""Connections that end at a deadline whatever trickles in, and that reach no address a registry cannot have.

A read timeout bounds one silence, not a drip: a header line or a TLS record that comes byte by byte would hold a worker
for hours. So every exchange has a timer that shuts its sockets down.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse

from gkm.api.errors import GKMError, Reason
from gkm.api.remedies import Remedy


@dataclass(slots=True)
class _Exchange:
    """What holds for the connections of this thread at the moment."""

    internal: Container[str]
    stall: float
    sockets: list[socket.socket] = field(default_factory=list)
    over: bool = False

    def watch(self, connection: socket.socket) -> None:
        # A duplicate: TLS takes the original over, and a shutdown of either ends both.
        self.sockets.append(socket.socket(fileno=os.dup(connection.fileno())))

    def shut(self) -> None:
        self.over = True  # before the first socket ends: whoever notices that asks why
        for watched in self.sockets:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for watched in self.sockets:
            watched.close()


_here = threading.local()


@contextmanager
def exchange(deadline: float, *, internal: Container[str], stall: float) -> Iterator[None]:
    """End what the connections of this thread do at `deadline` (time.monotonic()), a standstill after `stall` seconds.

    Only the hosts in `internal` (host or host:port) may lie on this machine or its links; what counts is the address
    that was connected to, however it was spelt.
    """
    current = _Exchange(internal, stall)
    timer = threading.Timer(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX), current.shut)
    timer.daemon = True
    timer.start()
    outer = getattr(_here, "exchange", None)
    _here.exchange = current
    try:
        yield
    finally:
        _here.exchange = outer
        timer.cancel()
        timer.join()  # at most one shutdown: after this no socket of ours is touched any more
        current.close()


def timed_out() -> bool:
    """Return whether the exchange of this thread came to its deadline, so that its sockets were shut down."""
    current: _Exchange | None = getattr(_here, "exchange", None)
    return current is not None and current.over


class _Watched(HTTPConnection):
    """What both kinds of connection do."""

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        current: _Exchange | None = getattr(_here, "exchange", None)
        if current is not None:
            current.watch(made)
            # Sending is under the socket's own timeout, until here that of connecting: an upload may pause longer.
            made.settimeout(current.stall)
            # A proxy is an address that the administrator chose; what it reaches is for it to say.
            configured = self.host in current.internal or f"{self.host}:{self.port}" in current.internal
            if not configured and not self.proxy and is_internal(made.getpeername()[0]):
                made.close()
                raise GKMError(
                    Reason.NOT_ALLOWED,
                    f"{self.host} is an address of this machine or its network, not of a registry",
                    Remedy.NAME_HOST,
                )
        return made

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        current: _Exchange | None = getattr(_here, "exchange", None)
        if current is not None and self.sock is not None:
            current.watch(self.sock)  # one from the pool was made in another exchange
        return super().getresponse()


class _WatchedTLS(_Watched, HTTPSConnection):
    pass


class Pool(HTTPConnectionPool):
    """urllib3's pool, of watched connections."""

    ConnectionCls = _Watched


class TLSPool(HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = _WatchedTLS


def is_internal(host: str) -> bool:
    """Return whether a host is this machine or a place where clouds keep secrets: loopback, link-local, unspecified.

    Private networks are not: registries live there (oras-go issue 1246 is what blocking them leads to).
    """
    if host in ("localhost", "metadata.google.internal"):
        return True
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any(
        candidate.is_loopback or candidate.is_link_local or candidate.is_unspecified
        for candidate in (address, mapped)
        if candidate is not None
    )
