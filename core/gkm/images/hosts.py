"""The hosts behind references: which may be asked, in what order, with whose token."""

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from threading import Lock

from urllib3 import BaseHTTPResponse

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.images.auth import Anonymous, Authorizer, Credentials
from gkm.images.reference import Reference
from gkm.images.transport import Limits, Request, Transport

MAX_HOSTS = 64
"""Hosts are named by users: so many are remembered with their connections and tokens, the least used goes first."""

OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 401, 403, 404


class Hosts:
    """Connections and tokens of every registry that the configuration allows. Thread-safe."""

    def __init__(
        self,
        config: Registries | None = None,
        credentials: Credentials | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._config = config or Registries()
        self._credentials = credentials or Anonymous()
        self.limits = limits or Limits()
        self._known: OrderedDict[str, tuple[Transport, Authorizer]] = OrderedDict()
        self._lock = Lock()

    def deadline(self, size: int = 0) -> float:
        """Return when an exchange with a body of `size` bytes that begins now must have ended (time.monotonic())."""
        return time.monotonic() + self.limits.request + size / self.limits.min_rate

    def sources(self, ref: Reference) -> list[str]:
        """Return the hosts that may have it: the mirrors of its registry, then the registry itself.

        Raises:
            GKMError: NOT_ALLOWED.
        """
        self.check_allowed(ref)
        configured = self._config.hosts.get(ref.registry)
        return [*(configured.mirrors if configured else []), ref.registry]

    def check_allowed(self, ref: Reference) -> None:
        """Accept a reference whose registry the configuration allows.

        Raises:
            GKMError: NOT_ALLOWED.
        """
        allow = self._config.allow
        if allow and not any(fnmatchcase(ref.name, pattern) for pattern in allow):
            raise GKMError(
                Reason.NOT_ALLOWED,
                f"{ref.name} is not among the allowed registries ({', '.join(allow)[:200]})",
                "ask an administrator to add it to registries.allow",
            )

    def url(self, host: str, repository: str, rest: str) -> str:
        """Return an address below a repository's part of the API (distribution-spec 1.1, "Endpoints")."""
        return f"{self._host(host)[0].base}/v2/{repository}/{rest}"

    @contextmanager
    def send(
        self, host: str, repository: str, request: Request, actions: str, deadline: float
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request, with a token when one is asked for; raises as Transport.send and Authorizer.answer do."""
        transport, authorizer = self._host(host)
        secret = authorizer.known(repository, actions)
        with transport.send(replace(request, secret=secret), deadline) as response:
            if response.status != UNAUTHORIZED:
                yield response
                return
            challenge = response.headers.get("WWW-Authenticate", "")
        secret = authorizer.answer(challenge, repository, actions, deadline)
        with transport.send(replace(request, secret=secret), deadline) as response:
            yield response

    def _host(self, registry: str) -> tuple[Transport, Authorizer]:
        with self._lock:
            if registry not in self._known:
                transport = Transport(self._config, registry, self.limits)
                self._known[registry] = transport, Authorizer(transport, self._credentials)
                if len(self._known) > MAX_HOSTS:
                    self._known.popitem(last=False)
            self._known.move_to_end(registry)
            return self._known[registry]


def failure(ref: Reference, status: int, verb: str) -> GKMError:
    """Return the error for an answer that is not the one that was hoped for; `verb` is what was tried."""
    if status in (UNAUTHORIZED, FORBIDDEN):
        return GKMError(
            Reason.UNAUTHORIZED,
            f"{ref} cannot be {verb}: the registry answers {status}",
            "check the credentials of this registry",
        )
    if status == NOT_FOUND:
        return GKMError(Reason.NOT_FOUND, f"{ref} does not exist in its registry", "check repository, tag and digest")
    return GKMError(Reason.REGISTRY_UNAVAILABLE, f"{ref} cannot be {verb}: the registry answers {status}")
