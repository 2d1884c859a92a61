"""HTTP to one registry host: bounded in time and bytes, redirects and credentials by rule, messages without bodies."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.exceptions import HTTPError

from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.connections import Pool, TLSPool, exchange, is_internal

MAX_TRIES = 3
MAX_REDIRECTS = 3
MAX_PAUSE_SECONDS = 5.0
_RETRIED = frozenset({429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a registry may take, in seconds, and how slowly it may send, in bytes a second.

    `request` bounds a whole answer; a blob gets `min_rate` on top, because a drip would hold a worker for days.
    """

    connect: float = 5.0
    stall: float = 15.0
    request: float = 30.0
    min_rate: int = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `url` is absolute, `secret` the Authorization value that only the registry's own host may see.

    A `body` that is made anew for each try needs a Content-Length among the headers.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    body: bytes | Callable[[], Iterable[bytes]] | None = field(default=None, repr=False)


class Transport:
    """Sends requests for one registry host. Thread-safe: urllib3's pools are."""

    def __init__(self, registries: Registries, registry: str, limits: Limits) -> None:
        self.registry = registry
        self.limits = limits
        self.host = registries.hosts.get(registry, RegistryHost())
        self._internal = frozenset(registries.hosts)
        if registry not in registries.hosts and is_internal(urlsplit(self.base).hostname or ""):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"registry {registry} is an address of this machine or its network, not of a registry",
                "if it is right, name it in registries.hosts",
            )
        if self.host.ca_file and not Path(self.host.ca_file).is_file():
            raise self.unavailable(f"its certificate authority {self.host.ca_file} cannot be read")
        self._pool = self._pools()

    @property
    def base(self) -> str:
        """Return the root of the registry's API."""
        # docker.io is the name of an index; its registry answers elsewhere.
        host = "registry-1.docker.io" if self.registry == "docker.io" else self.registry
        return f"{'http' if self.host.plain_http else 'https'}://{host}"

    @contextmanager
    def send(self, request: Request, deadline: float) -> Iterator[BaseHTTPResponse]:
        """Give the answer with its body unread; 429 and 5xx are tried again within the deadline.

        `deadline` is a value of time.monotonic(): everything ends there, what is done with the body included. What
        was not read of the body when the block ends costs the connection.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, or NOT_ALLOWED for a redirect that must not be followed.
        """
        with exchange(deadline, internal=self._internal):
            response = self._answer(request, deadline)
            try:
                yield response
            finally:
                # A connection with unread bytes must not go back to the pool.
                response.release_conn() if response.closed else response.close()

    def _pools(self) -> PoolManager:
        proxy = _proxy_for(self.base)
        options: dict[str, Any] = {
            "num_pools": 4,
            "maxsize": 4,
            "retries": False,
            "headers": {"User-Agent": "gkm", "Accept-Encoding": "identity"},
            "ca_certs": self.host.ca_file or None,
        }
        pools = ProxyManager(proxy, **options) if proxy else PoolManager(**options)
        pools.pool_classes_by_scheme = {"http": Pool, "https": TLSPool}
        return pools

    def _answer(self, request: Request, deadline: float) -> BaseHTTPResponse:
        for attempt in range(1, MAX_TRIES + 1):
            try:
                response = self._follow(request, deadline)
            except HTTPError as error:
                if attempt == MAX_TRIES or time.monotonic() >= deadline:
                    raise self.unavailable(_cause(error)) from error
                pause = 0.2 * attempt
            else:
                if response.status not in _RETRIED or attempt == MAX_TRIES:
                    return response
                pause = _retry_after(response.headers.get("Retry-After", "")) or 0.2 * attempt
                response.close()
            if time.monotonic() + pause >= deadline:
                raise self.unavailable("it did not answer in time")
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, request: Request, deadline: float) -> BaseHTTPResponse:
        url = request.url
        for _ in range(MAX_REDIRECTS + 1):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self.unavailable("it did not answer in time")
            headers = dict(request.headers)
            if request.secret and self.may_see_secret(url):
                headers["Authorization"] = request.secret
            response = self._pool.request(
                request.method,
                url,
                headers=headers,
                body=request.body() if callable(request.body) else request.body,
                redirect=False,
                preload_content=False,
                decode_content=False,
                timeout=Timeout(connect=min(self.limits.connect, remaining), read=min(self.limits.stall, remaining)),
            )
            if response.status not in _REDIRECTS or request.method not in ("GET", "HEAD"):
                return response
            response.close()
            url = self._redirected(url, response.headers.get("Location", ""))
        raise self.unavailable(f"it redirected more than {MAX_REDIRECTS} times")

    def may_see_secret(self, url: str) -> bool:
        """Return whether credentials of this registry may go to `url`: its own host, or one that is configured."""
        target = self._parsed(url)
        base = urlsplit(self.base)
        return (target.scheme, target.netloc) == (base.scheme, base.netloc) or (
            target.scheme == "https" and target.netloc in self.auth_hosts
        )

    @property
    def auth_hosts(self) -> tuple[str, ...]:
        """Return the hosts beside the registry's own that hand out tokens for it."""
        return (*self.host.auth_hosts, *(("auth.docker.io",) if self.registry == "docker.io" else ()))

    def _redirected(self, origin: str, location: str) -> str:
        here, there = urlsplit(origin), self._parsed(location, origin)
        if here.scheme == "https" and there.scheme != "https":
            raise GKMError(Reason.NOT_ALLOWED, f"{self.registry} redirects from https to {there.scheme[:10]!r}")
        if there.scheme not in ("http", "https") or not there.hostname:
            raise GKMError(Reason.NOT_ALLOWED, f"{self.registry} redirects to something that is no http address")
        if there.netloc != here.netloc and is_internal(there.hostname):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{self.registry} redirects to {there.hostname[:100]}, an address that no registry has",
            )
        return there.geturl()

    def _parsed(self, address: str, base: str = "") -> SplitResult:
        """Return an address that the registry sent.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, when it is none.
        """
        try:
            parsed = urlsplit(urljoin(base, address))
            _ = parsed.port
        except ValueError as error:
            raise self.unavailable("it sent an address that is none") from error
        return parsed

    def unavailable(self, why: str) -> GKMError:
        """Return the error for a registry that does not answer as it should."""
        return GKMError(Reason.REGISTRY_UNAVAILABLE, f"registry {self.registry} is not available: {why}")


def _proxy_for(base: str) -> str | None:
    """Return the proxy of the environment for a host (HTTPS_PROXY and its kin, NO_PROXY honoured)."""
    parts = urlsplit(base)
    if is_internal(parts.hostname or "") or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _retry_after(value: str) -> float:
    return min(float(value), MAX_PAUSE_SECONDS) if value.isascii() and value.isdigit() else 0.0


def _cause(error: HTTPError) -> str:
    match error:
        case urllib3.exceptions.NameResolutionError():
            return "its name cannot be resolved"
        case urllib3.exceptions.SSLError():
            return "its certificate is not trusted, or it does not speak TLS (registries.hosts: caFile, plainHTTP)"
        case urllib3.exceptions.ProxyError():
            return "its proxy does not answer"
        case urllib3.exceptions.NewConnectionError():  # a kind of ConnectTimeoutError, so it comes first
            return "it refuses connections"
        case urllib3.exceptions.ConnectTimeoutError() | urllib3.exceptions.ReadTimeoutError():
            return "it did not answer in time"
    return "the connection broke"
