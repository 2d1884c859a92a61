"""Sigstore's services over HTTP: bounded in time and bytes.

sigstore-python has clients for them too, but they wait for ever for a service that is silent. Nobody is asked but the
services that are named, and nothing is fetched that says whom to trust.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.bodies import read_body
from gkm.images.registries.transport import HttpRequest, Limits, Transport

MAX_RESPONSE_BYTES = 1 << 20
PUBLIC_FULCIO = "https://fulcio.sigstore.dev"
PUBLIC_REKOR = "https://rekor.sigstore.dev"


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """What a service said; `location` is absolute, or empty."""

    status: int
    body: bytes
    location: str


class SigstoreService:
    """One service at a URL; `name` is what a person calls it.

    No answer is waited for beyond `until` (time.monotonic()), nor longer than `limits` say.
    """

    def __init__(
        self,
        name: str,
        url: str,
        ca_file: Path | None = None,
        limits: Limits | None = None,
        until: float = math.inf,
    ) -> None:
        """Take the URL apart.

        Raises:
            GKMError: INVALID_REFERENCE, when it is none.
        """
        self.name = name
        self._limits = limits or Limits()
        self._until = until
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise GKMError(
                Reason.INVALID_REFERENCE,
                f"the address of {name}, {url[:120]!r}, is not one of a service",
                "write https://host or http://host:port",
            )
        self.url = url.rstrip("/")
        host = RegistryHost(plain_http=parts.scheme == "http", ca_file=str(ca_file or ""))
        self._transport = Transport(Registries(hosts={parts.netloc: host}), parts.netloc, self._limits)

    def post(self, path: str, body: bytes, secret: str = "") -> ServiceResponse:
        """Send a JSON document and return the answer, whatever its status.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, NOT_ALLOWED or TOO_LARGE.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return self._send(HttpRequest("POST", self.url + path, headers, secret, body))

    def get(self, url: str) -> ServiceResponse:
        """Return what lies at an address of this service; raises as `post` does."""
        if (urlsplit(url).scheme, urlsplit(url).netloc) != (urlsplit(self.url).scheme, urlsplit(self.url).netloc):
            raise self.failure("it names an address of somebody else")
        return self._send(HttpRequest("GET", url, {"Accept": "application/json"}))

    def failure(self, why: str, reason: Reason = Reason.REGISTRY_UNAVAILABLE, detail: str = "") -> GKMError:
        """Return the error for a service that does not do what it is for."""
        return GKMError(reason, f"{self.name} at {self.url} did not answer as it should: {why}", detail=detail)

    def _send(self, request: HttpRequest) -> ServiceResponse:
        deadline = min(time.monotonic() + self._limits.request, self._until)
        try:
            with self._transport.send(request, deadline) as response:
                body = read_body(response, MAX_RESPONSE_BYTES, deadline)
                location = response.headers.get("Location", "")
                return ServiceResponse(response.status, body, urljoin(request.url, location) if location else "")
        except GKMError as error:
            # Its words are about registries.
            raise self.failure(error.message, error.reason, error.detail) from error
