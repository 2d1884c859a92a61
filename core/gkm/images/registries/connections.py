"""HTTP connections that end at a deadline and reach only addresses that a registry may have.

A read timeout bounds one silence, not a drip: a header line or a TLS record that arrives byte by byte could hold a
worker for hours. So each exchange has a timer that shuts its sockets down at the deadline.

A connection resolves the host itself, checks the addresses and connects to exactly those. A name that resolves to
another address a moment later (DNS rebinding) has no effect, and no packet goes to an address that is not permitted.

urllib3 passes only a timeout from a request to its connection. So `ExchangeTimeout`, a number of seconds, carries the
exchange there.

HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment have the meaning that Go programs give them. The other programs
on a node are configured in Go's terms, including networks in NO_PROXY, so GKM follows them.
"""

import base64
import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import unquote, urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, ProxyManager, exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse
from urllib3.util import parse_url
from urllib3.util.connection import create_connection

from gkm.api.errors import GKMError, Reason, Remedy
from gkm.images.registries.addresses import Address, NetworkKind, kind_of_host
from gkm.images.registries.host_rules import HostRules

TIMED_OUT = "it did not answer in time"
MAX_ADDRESSES = 16
"""The number of addresses of a name that are tried: the owner of a name may list hundreds that never answer."""
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(slots=True)
class Exchange:
    """A request with its redirects, retries and response body; it must end by `deadline` (time.monotonic()).

    `rules` name the hosts that may have a private address. `stall` is the longest silence in seconds.
    """

    rules: HostRules
    deadline: float
    stall: float
    sockets: list[socket.socket] = field(default_factory=list)
    expired: bool = False
    """Whether the deadline has passed and the timer has shut down the sockets."""

    def timeout(self, seconds: float) -> "ExchangeTimeout":
        """Return a connection timeout of this many seconds that carries this exchange."""
        timeout = ExchangeTimeout(seconds)
        timeout.exchange = self
        return timeout

    def watch(self, connection: socket.socket) -> None:
        """Register a connection, whose socket is shut down at the deadline."""
        # A duplicate: TLS takes the original over, and a shutdown of either ends both.
        self.sockets.append(socket.socket(fileno=os.dup(connection.fileno())))

    def shut_down(self) -> None:
        """End all connections of the exchange; the timer calls this at the deadline."""
        self.expired = True  # before the first socket ends, because the thread that notices reads it
        for watched in self.sockets:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)


class ExchangeTimeout(float):
    """A timeout in seconds that carries its exchange through urllib3 to the connection."""

    exchange: Exchange


@contextmanager
def open_exchange(deadline: float, *, rules: HostRules, stall: float) -> Iterator[Exchange]:
    """Yield an exchange; at `deadline` (time.monotonic()) a timer shuts down its sockets."""
    exchange = Exchange(rules, deadline, stall)
    timer = threading.Timer(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX), exchange.shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield exchange
    finally:
        timer.cancel()
        timer.join()  # at most one shutdown; afterwards the timer touches no socket
        for watched in exchange.sockets:
            watched.close()


class _DeadlineConnection(HTTPConnection):
    """A connection under the deadline and the host rules of the exchange that uses it."""

    @property
    def _exchange(self) -> Exchange:
        if not isinstance(self.timeout, ExchangeTimeout):
            raise TypeError("the connection was opened outside of an exchange")
        return self.timeout.exchange

    def _new_conn(self) -> socket.socket:
        exchange = self._exchange
        # The administrator chose the proxy's address; the proxy decides which hosts it reaches.
        new_socket = super()._new_conn() if self.proxy else self._connect_permitted(exchange)
        exchange.watch(new_socket)
        # urllib3 sends under the connect timeout of the socket; an upload may pause longer.
        new_socket.settimeout(exchange.stall)
        return new_socket

    def _connect_permitted(self, exchange: Exchange) -> socket.socket:
        """Connect to the first permitted address of the host that answers; raises urllib3's errors."""
        found = self._resolved()
        permitted = [address for address in found if exchange.rules.permit(self.host, self.port, address)]
        if not permitted:
            raise not_public(f"{self.host[:100]} leads to")
        failure: Exception = exceptions.NewConnectionError(self, "no time was left to connect")
        for address in permitted[:MAX_ADDRESSES]:
            remaining = exchange.deadline - time.monotonic()
            timeout = min(float(self.timeout or remaining), remaining)
            if timeout <= 0:
                break
            try:
                return create_connection((address, self.port), timeout, self.source_address, self.socket_options)
            except TimeoutError:
                failure = exceptions.ConnectTimeoutError(self, f"{address} did not answer within {timeout:g} s")
            except OSError as error:
                failure = exceptions.NewConnectionError(self, f"{address}: {error}")
        raise failure

    def _resolved(self) -> list[str]:
        """Return the addresses of the host without duplicates."""
        try:
            self.host.encode("idna")
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise exceptions.LocationParseError(self.host) from error
        except socket.gaierror as error:
            raise exceptions.NameResolutionError(self.host, self, error) from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        if self.sock is not None:
            self._exchange.watch(self.sock)  # a pooled connection was opened in an earlier exchange
        return super().getresponse()


class _DeadlineTLSConnection(_DeadlineConnection, HTTPSConnection):
    pass


class _DeadlinePool(HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection


class _DeadlineTLSPool(HTTPSConnectionPool):
    ConnectionCls = _DeadlineTLSConnection


def not_public(host_is: str) -> GKMError:
    """Return the error for a host with a non-public address that the configuration does not allow."""
    return GKMError(
        Reason.NOT_ALLOWED,
        f"{host_is} an address of this machine or of a private network, not of a public registry",
        Remedy.NAME_HOST,
    )


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; its repr hides the password."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def make_pools(proxy: Proxy | None, ca_file: str) -> PoolManager:
    """Return the connection pools for one registry, which trust `ca_file` or the system's authorities. Thread-safe."""
    options: dict[str, Any] = {
        "num_pools": 4,
        "maxsize": 4,
        "retries": False,
        "headers": {"User-Agent": "gkm", "Accept-Encoding": "identity"},
        "ca_certs": ca_file or None,
    }
    pools = ProxyManager(proxy.url, proxy_headers=dict(proxy.headers), **options) if proxy else PoolManager(**options)
    pools.pool_classes_by_scheme = {"http": _DeadlinePool, "https": _DeadlineTLSPool}
    return pools


def describe_error(error: exceptions.HTTPError) -> tuple[str, str]:
    """Return the cause of a connection error in plain words, and a next step; "" if only a retry can help."""
    match error:
        case exceptions.NameResolutionError():
            return "its name cannot be resolved", ""
        case exceptions.SSLError():
            return "its certificate is not trusted, or it does not speak TLS", Remedy.TRUST_OR_PLAIN_HTTP
        case exceptions.ProxyError():
            return "its proxy does not answer", ""
        case exceptions.NewConnectionError():  # a subclass of ConnectTimeoutError, so it comes first
            return "it refuses connections", ""
        case (
            exceptions.ConnectTimeoutError()
            | exceptions.ReadTimeoutError()
            | exceptions.ProtocolError(args=(_, TimeoutError()))  # during a send
        ):
            return TIMED_OUT, ""
    return "the connection broke", ""


class InvalidProxy(ValueError):
    """The environment names an invalid proxy. The message does not repeat the value, which may contain a password."""


def proxy_for(address: Address) -> Proxy | None:
    """Return the proxy for an address from the environment, None if it names no proxy; never for this machine.

    Raises:
        InvalidProxy: the value is no http proxy.
    """
    named = _variable(f"{address.scheme}_proxy")
    is_local = kind_of_host(address.host) is NetworkKind.LOCAL
    if not named or is_local or is_excluded(address.host, address.port, _variable("no_proxy")):
        return None
    try:
        return _parse(named if _SCHEME.match(named) else f"http://{named}")
    except ValueError:
        # Not chained, because Python's message quotes the invalid text, which may contain a part of the password.
        raise InvalidProxy(f"{address.scheme.upper()}_PROXY names no http proxy") from None


def _parse(url: str) -> Proxy:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no http address")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    origin = f"{parts.scheme}://{host}:{port}"
    parse_url(origin)  # urllib3 parses it too, and more strictly
    if not parts.username:
        return Proxy(origin)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(origin, (("proxy-authorization", f"Basic {base64.b64encode(login).decode()}"),))


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name, "")


def is_excluded(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY excludes a host: by `*`, a name (with its subdomains), an address or a network."""
    return any(_entry_matches(entry.strip().lower(), host, port) for entry in no_proxy.split(",") if entry.strip())


def _entry_matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(host, entry)
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and (name.startswith("[") or ":" not in name):
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")


def _in_network(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
