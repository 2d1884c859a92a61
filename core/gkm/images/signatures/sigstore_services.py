"""A client of Sigstore's services over HTTP, bounded in time and bytes.

sigstore-python has such clients too, but they wait forever for a service that does not respond. This client contacts
only the configured services, and it never fetches trust material.
"""

import math
import time
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.transport import RegistryRequest, Transport, TransportLimits, read_body

MAX_RESPONSE_BYTES = 1 << 20
PUBLIC_FULCIO = "https://fulcio.sigstore.dev"
PUBLIC_REKOR = "https://rekor.sigstore.dev"


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """The response of a Sigstore service; `location` is an absolute URL or empty."""

    status: int
    body: bytes
    location: str


class SigstoreService:
    """A client of one Sigstore service at a URL; error messages call it `name`.

    A request ends before `until` (time.monotonic()) and within `limits`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        limits: TransportLimits | None = None,
        until: float = math.inf,
    ) -> None:
        """Parse the URL.

        Raises:
            GKMError: INVALID_REFERENCE if the URL is not the address of a service.
        """
        self.name = name
        self._limits = limits or TransportLimits()
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
        host = RegistryHost(plain_http=parts.scheme == "http")
        self._transport = Transport(Registries(hosts={parts.netloc: host}), parts.netloc, self._limits)

    def post(self, path: str, body: bytes, secret: str = "") -> ServiceResponse:
        """Send a JSON document and return the response, with any status.

        Raises:
            GKMError: REGISTRY_UNAVAILABLE, NOT_ALLOWED or TOO_LARGE.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return self._send(RegistryRequest("POST", self.url + path, headers, secret, body))

    def get(self, url: str, secret: str = "") -> ServiceResponse:
        """Return the response for a URL of this service; raises as `post` does."""
        if (urlsplit(url).scheme, urlsplit(url).netloc) != (urlsplit(self.url).scheme, urlsplit(self.url).netloc):
            raise self.failure("it names an address of another service")
        return self._send(RegistryRequest("GET", url, {"Accept": "application/json"}, secret))

    def failure(self, problem: str, reason: Reason = Reason.REGISTRY_UNAVAILABLE, detail: str = "") -> GKMError:
        """Return the error for an unexpected answer of the service."""
        return GKMError(reason, f"{self.name} at {self.url} did not answer as it should: {problem}", detail=detail)

    def _send(self, request: RegistryRequest) -> ServiceResponse:
        deadline = min(time.monotonic() + self._limits.request, self._until)
        try:
            with self._transport.send(request, deadline) as response:
                body = read_body(response, MAX_RESPONSE_BYTES, deadline)
                location = response.headers.get("Location", "")
                return ServiceResponse(response.status, body, urljoin(request.url, location) if location else "")
        except GKMError as error:
            # The transport's message speaks of registries.
            raise self.failure(error.message, error.reason, error.detail) from error
