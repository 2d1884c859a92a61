"""Decide which hosts GKM contacts for an image reference, in which order, and with which token."""

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import copy
from typing import Self

from urllib3 import BaseHTTPResponse

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate.lru import LRUCache
from gkm.images.reference import Reference
from gkm.images.registries.auth import Authorizer, Credentials
from gkm.images.registries.connections import not_public
from gkm.images.registries.credentials import Keyring
from gkm.images.registries.host_rules import HostRules
from gkm.images.registries.transport import (
    FORBIDDEN,
    NOT_FOUND,
    OK,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    RegistryRequest,
    Transport,
    TransportLimits,
    requested_pause,
)

MAX_HOSTS = 64
"""Limit of hosts with open connections: users name hosts, so the least recently used connections are dropped."""


class RegistryHosts:
    """Connections to and tokens for all registries that the configuration allows. Thread-safe."""

    def __init__(
        self,
        config: Registries | None = None,
        credentials: Credentials | None = None,
        limits: TransportLimits | None = None,
    ) -> None:
        self._config = config or Registries()
        self._credentials = credentials or Keyring()
        self.limits = limits or TransportLimits()
        self._rules = HostRules.of(self._config)
        self._transports: LRUCache[str, Transport] = LRUCache(MAX_HOSTS)
        self._authorizers: LRUCache[str, Authorizer] = LRUCache(MAX_HOSTS)
        self._end = self._mirrors_end = math.inf
        self._mirrored = True

    def with_credentials(self, credentials: Credentials) -> Self:
        """Return an instance for another tenant: it shares connections, but neither credentials nor tokens.

        It costs no request, but its tokens live only as long as the object: keep one for each active namespace.
        """
        other = copy(self)
        other._credentials = credentials  # noqa: SLF001 -- a copy of this object
        other._authorizers = LRUCache(MAX_HOSTS)  # noqa: SLF001
        return other

    def within(self, seconds: float) -> Self:
        """Return an instance whose following requests together end within `seconds` from now.

        The mirrors together get the first half of this time, so that a mirror that hangs leaves the registry the rest.
        """
        other = copy(self)
        now = time.monotonic()
        other._end = min(self._end, now + seconds)  # noqa: SLF001 -- a copy of this object
        other._mirrors_end = min(self._mirrors_end, now + (other._end - now) / 2)  # noqa: SLF001
        return other

    def without_mirrors(self) -> Self:
        """Return an instance that reads every image from its registry, without mirrors."""
        other = copy(self)
        other._mirrored = False  # noqa: SLF001 -- a copy of this object
        return other

    def has_mirrors(self, ref: Reference) -> bool:
        """Return whether the content of a reference may come from a mirror."""
        return len(self.sources(ref)) > 1

    def deadline(self, size: int = 0) -> float:
        """Return the deadline (time.monotonic()) of a registry request that starts now with a body of `size` bytes."""
        return min(self._end, time.monotonic() + self.limits.request + size / self.limits.min_rate)

    def deadline_at(self, source: str, ref: Reference, size: int = 0) -> float:
        """Return the deadline for a request to one source of an image.

        It is earlier for a mirror, as `within` states.
        """
        deadline = self.deadline(size)
        return deadline if source == ref.registry else min(deadline, self._mirrors_end)

    def mirrors_have_time(self) -> bool:
        """Return whether another request to a mirror fits into the time that `within` set."""
        return time.monotonic() < self._mirrors_end

    def sources(self, ref: Reference) -> list[str]:
        """Return the hosts to read an image from: the mirrors of its registry, then the registry itself.

        Raises:
            GKMError: NOT_ALLOWED.
        """
        self.check_allowed(ref)
        return self._config.sources(ref.registry) if self._mirrored else [ref.registry]

    def check_allowed(self, ref: Reference) -> None:
        """Check that the configuration allows the registry of a reference, by its name only; sends no request.

        Raises:
            GKMError: NOT_ALLOWED.
        """
        allow = self._config.allow
        if allow and not any(ref.matches(pattern) for pattern in allow):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{ref.name} is not among the allowed registries ({', '.join(allow)[:200]})",
                Remedy.ALLOW_REGISTRY,
            )
        if not self._rules.permit_registry(ref.registry):
            raise not_public(f"registry {ref.registry} is")

    def url(self, host: str, repository: str, rest: str) -> str:
        """Return an address below a repository's part of the API (distribution-spec 1.1, "Endpoints")."""
        return f"{self._transport(host).base}/v2/{repository}/{rest}"

    def location(self, host: str, origin: str, location: str) -> str:
        """Return the address in a host's Location header, relative to `origin`; raises as resolve_redirect does."""
        return self._transport(host).resolve_redirect(origin, location)

    def send(
        self, host: str, repository: str, request: RegistryRequest, actions: str, deadline: float
    ) -> AbstractContextManager[BaseHTTPResponse]:
        """Send a request with the credentials for a host; raises as Authorizer.send does."""
        authorizer = self._authorizers.get_or_create(host, lambda: Authorizer(self._credentials))
        return authorizer.send(self._transport(host), request, repository, actions, deadline)

    def check_login(self, registry: str) -> None:
        """Check that a registry accepts the credentials (distribution-spec 1.1, end-1).

        Raises:
            GKMError: UNAUTHORIZED if the registry refuses the credentials; NOT_ALLOWED, REGISTRY_UNAVAILABLE.
        """
        request = RegistryRequest("GET", f"{self._transport(registry).base}/v2/", {})
        with self.send(registry, "", request, "", self.deadline()) as response:
            if response.status != OK:
                raise GKMError(
                    Reason.REGISTRY_UNAVAILABLE,
                    f"registry {registry} answers {response.status} to a check of the login",
                )

    def _transport(self, host: str) -> Transport:
        return self._transports.get_or_create(host, lambda: Transport(self._config, host, limits=self.limits))


class UnexpectedStatus(GKMError):
    """A registry answered with an unexpected HTTP status."""

    status: int = 0


def failure(ref: Reference, status: int, verb: str, headers: Mapping[str, str]) -> UnexpectedStatus:
    """Return the error for an unexpected response status; `verb` names the attempted operation ("read", "written").

    `headers` are those of the response.
    """
    message, about, pause = f"{ref} cannot be {verb}: the registry answers {status}", "", 0.0
    hint: str = ""
    if status in (UNAUTHORIZED, FORBIDDEN):
        reason, hint, about = Reason.UNAUTHORIZED, Remedy.CHECK_LOGIN, ref.registry
    elif status == NOT_FOUND:
        reason, hint = Reason.NOT_FOUND, "check repository, tag and digest"
        message = f"{ref} does not exist in its registry"
    else:
        reason, pause = Reason.REGISTRY_UNAVAILABLE, requested_pause(headers.get("Retry-After", ""))
        if status == TOO_MANY_REQUESTS:
            hint = "it limits how often it is asked: try again later, or log in"
    error = UnexpectedStatus(reason, message, hint, about, retry_after=pause)
    error.status = status
    return error
