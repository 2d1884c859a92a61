"""Reads answers of one HTTPS server within bounds of time and bytes. No error holds a part of an answer or a header.

The whole exchange has a deadline, redirects are refused, and no proxy of the environment sees the credentials. Private
addresses are possible: an administrator names the server.
"""

import ssl
import time
from collections.abc import Mapping

from gkm.api.errors import GKMError, Reason
from gkm.images.registries.connections import TIMED_OUT, describe_error, make_pools, open_exchange
from gkm.images.registries.host_rules import HostRules
from gkm.images.registries.transport import read_body
from gkm.topology.providers import ProviderFailed
from urllib3 import Timeout
from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

MAX_BODY_BYTES = 100 << 20
"""No less than a decoder of answers accepts (gkm.topology.fabrics.ufm)."""
_CONNECT_SECONDS, _STALL_SECONDS = 10.0, 30.0
_OK = 200
_REFUSED = frozenset({401, 403})
_REDIRECTS = range(300, 400)
_BODY_FAULTS = {
    Reason.TOO_LARGE: f"it sends more than {MAX_BODY_BYTES} bytes",
    Reason.UNSAFE_CONTENT: "it sends a Content-Encoding that was not requested",
    Reason.REGISTRY_UNAVAILABLE: "it sends too slowly, or broke off",
}


class HttpsSource:
    """One server; `headers` may hold credentials."""

    def __init__(self, url: str, ca_file: str, headers: Mapping[str, str], seconds: float) -> None:
        """Accept https://host[:port][/path].

        Raises:
            ProviderFailed: the URL is another one, or the file cannot be used.
        """
        try:
            parsed = parse_url(url)
        except HTTPError:
            parsed = Url()
        if parsed.scheme != "https" or not parsed.host or parsed.auth or parsed.query or parsed.fragment:
            raise ProviderFailed("has an invalid config: url is not https://host[:port]")
        try:
            ssl.create_default_context(cafile=ca_file or None)
        except OSError:
            raise ProviderFailed("has an invalid config: caFile holds no certificates that can be read") from None
        self._base = url.rstrip("/")
        self._rules = HostRules(local=frozenset({(parsed.host.strip("[]").lower(), parsed.port or 443)}))
        self._pools = make_pools(None, ca_file)
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "gkm", **headers}
        self._seconds = seconds

    def get(self, path: str) -> bytes:
        """Return the body at a path.

        Raises:
            ProviderFailed: the response has no body; the message names the kind of fault.
        """
        deadline = time.monotonic() + self._seconds
        with open_exchange(deadline, rules=self._rules, stall=_STALL_SECONDS) as exchange:
            try:
                with self._pools.request(
                    "GET",
                    f"{self._base}{path}",
                    headers=self._headers,
                    redirect=False,
                    retries=False,
                    preload_content=False,
                    timeout=Timeout(
                        connect=exchange.timeout(min(_CONNECT_SECONDS, self._seconds)),
                        read=exchange.timeout(min(_STALL_SECONDS, self._seconds)),
                    ),
                ) as response:
                    _check_status(response.status)
                    return read_body(response, MAX_BODY_BYTES, deadline)
            except GKMError as error:
                raise ProviderFailed(
                    f"cannot read its server: {_BODY_FAULTS.get(error.reason, 'not permitted')}"
                ) from None
            except HTTPError as error:
                fault = TIMED_OUT if exchange.expired else describe_error(error)[0]
                raise ProviderFailed(f"cannot read its server: {fault}") from None


def _check_status(status: int) -> None:
    if status in _REFUSED:
        raise ProviderFailed(f"cannot read its server: it refuses the credentials (status {status})")
    if status in _REDIRECTS:
        raise ProviderFailed(f"cannot read its server: it redirects (status {status}); url must name the final address")
    if status != _OK:
        raise ProviderFailed(f"cannot read its server: it answers with status {status}")
