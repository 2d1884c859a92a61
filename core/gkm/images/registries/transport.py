"""HTTP to one registry host, bounded in time and bytes; redirects and credentials follow rules; errors quote no body.

Every failure to reach a host has the same message, so that a user who names hosts does not learn which of their ports
are open or what listens there. The cause is in the log, and in the error's `detail` for the command line.

The size and time of a body have bounds that do not depend on the headers, and so has the delay before a retry.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError, InvalidHeader

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Backoff
from gkm.images.registries import addresses
from gkm.images.registries.addresses import NetworkKind, kind_of_host
from gkm.images.registries.connections import (
    TIMED_OUT,
    Exchange,
    InvalidProxy,
    Proxy,
    describe_error,
    make_pools,
    not_public,
    open_exchange,
    proxy_for,
)
from gkm.images.registries.host_rules import DOCKER_HUB, HUB_AUTH, HUB_REGISTRY, HostRules

_LOG = logging.getLogger(__name__)
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS = 200, 401, 403, 404, 429
MAX_ATTEMPTS = 3
MAX_REDIRECTS = 3
MAX_PROXIES = 3
"""Limit of connection pools: without a proxy, and through the proxies for http and https."""
RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_WITH_BODY = frozenset({307, 308})
"""The other redirects turn a write into a GET, which no registry can intend."""
CHUNK_BYTES = 256 << 10
MAX_DELAY_SECONDS = 5.0
"""The longest pause, before its spread, that a worker waits for; a registry that requests more is retried later."""
MAX_RETRY_AFTER_SECONDS = 1200.0
"""Limit in seconds of the pause that a registry can request; a longer request is cut."""
FIRST_DELAY_SECONDS = 0.4
"""Seconds before the first retry, without jitter; the pause doubles with each retry."""
_TOO_SLOW = "the registry sends too slowly: its answer was not complete in time"


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Time limits for a registry in seconds, and the lowest rate in bytes per second.

    `request` bounds a whole exchange; a blob gets its size divided by `min_rate` in addition. The first retry follows
    after `pause`.
    """

    connect: float = 5.0
    stall: float = 15.0
    request: float = 30.0
    min_rate: int = 64 << 10
    pause: float = FIRST_DELAY_SECONDS


@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """One HTTP request to a registry; `url` is absolute. Only the registry's own host receives `secret`.

    A callable `body` produces the bytes anew for each of at most `attempts` attempts; it needs a Content-Length header.
    `has_alternative`: another host may have the object, so only 429 is worth a retry: the load of a busy mirror must
    not move to the registry at once.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    body: bytes | Callable[[], Iterable[bytes]] | None = field(default=None, repr=False)
    attempts: int = MAX_ATTEMPTS
    has_alternative: bool = False

    @property
    def retryable_statuses(self) -> frozenset[int]:
        """Return the statuses after which the request is sent to the same host again."""
        return frozenset({TOO_MANY_REQUESTS}) if self.has_alternative else RETRYABLE_STATUSES


class Transport:
    """Sends requests to one registry host. Thread-safe."""

    def __init__(self, registries: Registries, registry: str, limits: TransportLimits) -> None:
        self.registry = registry
        self.limits = limits
        self.host = registries.host(registry)
        host = HUB_REGISTRY if registry == DOCKER_HUB else registry
        self.base = f"{'http' if self.host.plain_http else 'https'}://{host}"
        """The root of the registry's API."""
        try:
            base = addresses.parse_address(self.base)
        except addresses.InvalidAddress as error:
            raise GKMError(Reason.INVALID_REFERENCE, f"{registry} is not a valid registry address") from error
        self._rules = HostRules.of(registries, registry)
        self._secret_origins = {base.origin, *self._auth_origins(registries)}
        if not self._rules.permit_host(base.host, base.port):
            raise not_public(f"registry {registry} is")
        if self.host.ca_file and not Path(self.host.ca_file).is_file():
            raise self.unreachable(f"its certificate authority {self.host.ca_file} cannot be read")
        self._pools: LRUCache[Proxy | None, PoolManager] = LRUCache(MAX_PROXIES)

    @contextmanager
    def send(self, request: RegistryRequest, deadline: float) -> Iterator[BaseHTTPResponse]:
        """Yield the response with its body unread; 429 and 5xx are retried within the deadline.

        A registry that requests a longer pause than a worker waits for gets no retry here; the caller retries later.

        The whole exchange, including the caller's reading of the body, ends at `deadline` (time.monotonic()). If the
        block leaves a part of the body unread, the connection is closed.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, or NOT_ALLOWED for a forbidden redirect.
        """
        with open_exchange(deadline, rules=self._rules, stall=self.limits.stall) as exchange:
            response = self._send_with_retries(request, exchange)
            try:
                yield response
            finally:
                # The pool must not reuse a connection with unread bytes.
                response.release_conn() if response.closed else response.close()

    def may_send_credentials(self, url: str) -> bool:
        """Return whether credentials of this registry may be sent to `url`: only its own or configured servers."""
        try:
            return addresses.parse_address(url).origin in self._secret_origins
        except addresses.InvalidAddress:
            return False

    def resolve_redirect(self, origin: str, location: str) -> str:
        """Return the address in a Location header.

        Raises:
            GKMError: NOT_ALLOWED for a forbidden address, REGISTRY_UNAVAILABLE for an invalid one.
        """
        source = addresses.parse_address(origin)
        if not location:
            raise self.unavailable("it redirects without an address")
        try:
            target = addresses.parse_address(location, origin)
        except addresses.NotHttpAddress as error:
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{self.registry} redirects to an address with the scheme {str(error)!r}, not http or https",
            ) from error
        except addresses.InvalidAddress as error:
            raise self.unavailable("it sent an invalid address") from error
        if source.scheme == "https" and target.scheme != "https":
            raise GKMError(Reason.NOT_ALLOWED, f"{self.registry} redirects from https to {target.scheme}")
        local = kind_of_host(target.host) is NetworkKind.LOCAL
        if target.origin != source.origin and (local or not self._rules.permit_host(target.host, target.port)):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{self.registry} redirects to {target.host[:100]}, an address that no registry may have",
            )
        return target.url

    def unavailable(self, detail: str, retry_after: float = 0.0) -> GKMError:
        """Return the error for an unexpected answer of the registry; `detail` says what."""
        what = f"registry {self.registry} is not available: {detail}"
        return GKMError(Reason.REGISTRY_UNAVAILABLE, what, about=self.registry, retry_after=retry_after)

    def unreachable(self, detail: str, hint: str = "") -> GKMError:
        """Return the error for a registry that does not answer, and log the cause."""
        _LOG.info("registry not reached", extra=fields(registry=self.registry, why=detail))
        return unreachable(self.registry, detail, hint)

    def _auth_origins(self, registries: Registries) -> Iterator[tuple[str, str, int]]:
        """Yield the token servers beside the registry itself; one is plain http only if the configuration states it."""
        if self.registry == DOCKER_HUB:
            yield "https", HUB_AUTH, 443
        for host in self.host.auth_hosts:
            plain = registries.host(host).plain_http
            try:
                yield addresses.parse_address(f"{'http' if plain else 'https'}://{host}").origin
            except addresses.InvalidAddress as error:
                raise self.unavailable(f"authHosts names {host[:100]!r}, which is no host") from error

    def _send_with_retries(self, request: RegistryRequest, exchange: Exchange) -> BaseHTTPResponse:
        for attempt in range(1, request.attempts + 1):
            pause = retry_delay(attempt + 1, 0.0, self.limits.pause)
            try:
                response = self._follow(request, exchange)
            except HTTPError as error:
                late = time.monotonic() + pause >= exchange.deadline
                if request.has_alternative or attempt == request.attempts or late:
                    # The timer shuts the sockets down, which looks like a broken connection.
                    if exchange.expired:
                        raise self.unreachable(TIMED_OUT) from error
                    raise self.unreachable(*describe_error(error)) from error
            else:
                requested = requested_pause(response.headers.get("Retry-After", ""))
                pause = retry_delay(attempt + 1, requested, self.limits.pause)
                later = requested > MAX_DELAY_SECONDS and not request.has_alternative
                late = later or time.monotonic() + pause >= exchange.deadline
                if response.status not in request.retryable_statuses or attempt == request.attempts or late:
                    return response
                response.close()
            time.sleep(pause)
        raise AssertionError("the attempts ended without a result")

    def _follow(self, request: RegistryRequest, exchange: Exchange) -> BaseHTTPResponse:
        reading = request.method in ("GET", "HEAD")
        url = request.url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send_once(request, url, exchange)
            if response.status not in (_REDIRECTS if reading else _REDIRECTS_WITH_BODY):
                return response
            response.close()
            url = self.resolve_redirect(url, response.headers.get("Location", ""))
            if not reading and not self.may_send_credentials(url):
                # The body of a token request carries a secret, and only the registry itself may receive an upload.
                host = addresses.parse_address(url).host[:100]
                raise GKMError(Reason.NOT_ALLOWED, f"{self.registry} redirects an upload to {host}")
        raise self.unavailable(f"it redirected more than {MAX_REDIRECTS} times")

    def _send_once(self, request: RegistryRequest, url: str, exchange: Exchange) -> BaseHTTPResponse:
        """Send the request once, to `url`, and return the response."""
        remaining = exchange.deadline - time.monotonic()
        if remaining <= 0:
            raise self.unreachable(TIMED_OUT)
        headers = dict(request.headers)
        if request.secret and self.may_send_credentials(url):
            headers["Authorization"] = request.secret
        # A registry reads an uploaded blob again before it answers.
        silence = self.limits.request if request.body is not None else self.limits.stall
        began = time.monotonic()
        response = self._pools_for(url).request(
            request.method,
            url,
            headers=headers,
            body=request.body() if callable(request.body) else request.body,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=Timeout(
                connect=exchange.timeout(min(self.limits.connect, remaining)),
                read=exchange.timeout(min(silence, remaining)),
            ),
        )
        if _LOG.isEnabledFor(logging.DEBUG):
            self._log(request.method, url, response.status, time.monotonic() - began)
        return response

    def _log(self, method: str, url: str, status: int, seconds: float) -> None:
        """Log a request: without its query, and without the path on another host, which may be signed for one user."""
        address = addresses.parse_address(url)
        path = urlsplit(url).path if address.origin in self._secret_origins else None
        about = fields(method=method, host=address.host, path=path, status=status, ms=round(seconds * 1000))
        _LOG.debug("request to a registry", extra=about)

    def _pools_for(self, url: str) -> PoolManager:
        """Return the connections for an address; a redirect may need another proxy, or no proxy."""
        try:
            proxy = proxy_for(addresses.parse_address(url))
        except addresses.InvalidAddress as error:
            raise self.unavailable("it sent an invalid address") from error
        except InvalidProxy as error:
            raise self.unreachable(f"the environment's proxy cannot be used: {error}") from error
        return self._pools.get_or_create(proxy, lambda: make_pools(proxy, self.host.ca_file))


def unreachable(registry: str, detail: str = "", hint: str = "") -> GKMError:
    """Return the error for a registry that does not answer.

    The message is the same for every `detail`; the log and the command line show `detail` and its `hint`.
    """
    message = f"registry {registry} could not be reached"
    return GKMError(
        Reason.REGISTRY_UNAVAILABLE, message, "the log of GKM says why", registry, detail=detail, detail_hint=hint
    )


def read_chunks(response: BaseHTTPResponse, limit: int, deadline: float) -> Iterator[bytes]:
    """Yield the bytes of a response's body, at most `limit`, before `deadline` (time.monotonic()).

    Raises:
        GKMError: REGISTRY_UNAVAILABLE for a body that breaks off or is too slow; TOO_LARGE for a longer one;
            UNSAFE_CONTENT for a Content-Encoding.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        # We requested identity; an inflating body would hide its size (48 kB became 50 MB in a test).
        raise GKMError(Reason.UNSAFE_CONTENT, "the registry answers with a Content-Encoding that was not asked for")
    received = 0
    try:
        # read1, because read fills its buffer and so could wait past every deadline on a drip.
        more = True
        while more:
            chunk = response.read1(min(CHUNK_BYTES, limit + 1 - received))
            # The timer shuts the connection down at the deadline, which looks like the end of a body without a stated
            # length.
            if time.monotonic() >= deadline:
                raise GKMError(Reason.REGISTRY_UNAVAILABLE, _TOO_SLOW)
            received += len(chunk)
            if received > limit:
                raise GKMError(Reason.TOO_LARGE, f"the server sends more than the {limit} bytes that are allowed")
            if more := bool(chunk):
                yield chunk
    except (HTTPError, OSError) as error:
        if time.monotonic() >= deadline:
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, _TOO_SLOW) from error
        raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry broke off in the middle of an answer") from error


def read_body(response: BaseHTTPResponse, limit: int, deadline: float) -> bytes:
    """Return the whole body of a response; raises as `read_chunks` does."""
    body = BytesIO()
    for chunk in read_chunks(response, limit, deadline):
        body.write(chunk)
    return body.getvalue()


def requested_pause(retry_after: str) -> float:
    """Return the seconds until a retry that the header Retry-After requests, at most MAX_RETRY_AFTER_SECONDS.

    The header is a number or a date (RFC 9110, section 10.2.3); anything else is read as 0.
    """
    try:
        requested = Retry().parse_retry_after(retry_after[:64])
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0
    return min(max(requested, 0.0), MAX_RETRY_AFTER_SECONDS)


def retry_delay(attempt: int, requested: float = 0.0, first: float = FIRST_DELAY_SECONDS) -> float:
    """Return the seconds to wait before a repeated request; `attempt` is its number, 2 or more.

    Every client of a registry gets the same answer, so each waits for another time.
    """
    return Backoff(first, MAX_DELAY_SECONDS).pause(attempt - 1, min(requested, MAX_DELAY_SECONDS))
