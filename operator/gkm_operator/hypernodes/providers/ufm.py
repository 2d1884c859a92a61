"""The provider `ufm`: it reads ports from the REST API of NVIDIA UFM Enterprise (docs/reference/topology-providers.md).

UFM Enterprise REST API guide, "REST API Complementary Information": basic authentication is for /ufmRest, an access
token for /ufmRestV3 and sent as `Authorization: Basic <token>`. Both come from a Secret.

Its answers are read within bounds of time and bytes. No error holds a part of an answer or a header. The whole exchange
has a deadline, redirects are refused, and no proxy of the environment sees the credentials. Private addresses are
possible: an administrator names the server.
"""

import base64
import ssl
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from gkm.api.errors import GKMError, Reason
from gkm.api.topology_settings import CountedAdapters
from gkm.images.registries.connections import TIMED_OUT, describe_error, make_pools, open_exchange
from gkm.images.registries.host_rules import HostRules
from gkm.images.registries.transport import read_body
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.infiniband import from_subnets
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.fabrics.ufm import MAX_ROWS, Page, decode, subnet
from gkm.topology.providers import Provider, ProviderFailed
from msgspec import Meta
from urllib3 import Timeout
from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

from gkm_operator.hypernodes.providers.polling import Known, PollingProvider, parse_config

MAX_BODY_BYTES = 100 << 20
"""Limit of bytes of an answer; the decoder accepts as much (gkm.topology.fabrics.ufm)."""
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
    """An HTTPS server that a provider reads from; `headers` may contain credentials."""

    def __init__(self, url: str, ca_file: str, headers: Mapping[str, str], seconds: float) -> None:
        """Parse the URL, which must be https://host[:port][/path].

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
        """Return the body of the response to a GET request for a path.

        Raises:
            ProviderFailed: no usable response came; the message names the kind of fault.
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
                fault = _BODY_FAULTS.get(error.reason, "GKM does not permit its address")
                raise ProviderFailed(f"cannot read the HTTPS server in its url: {fault}") from None
            except HTTPError as error:
                fault = TIMED_OUT if exchange.expired else describe_error(error)[0]
                raise ProviderFailed(f"cannot read the HTTPS server in its url: {fault}") from None


def _check_status(status: int) -> None:
    if status in _REFUSED:
        raise ProviderFailed(f"cannot read the HTTPS server in its url: it refuses the credentials (status {status})")
    if status in _REDIRECTS:
        raise ProviderFailed(
            f"cannot read the HTTPS server in its url: it redirects (status {status}); url must name the final address"
        )
    if status != _OK:
        raise ProviderFailed(f"cannot read the HTTPS server in its url: it answers with status {status}")


PAGE_ROWS = 1_000
_MAX_PAGES = MAX_ROWS // PAGE_ROWS + 1
_SECONDS = Meta(ge=0.1, le=86_400)


class UfmConfig(CountedAdapters, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The `config` of the provider `ufm`. `timeout_seconds` is for one page, which may have 100 MiB."""

    url: Annotated[str, Meta(max_length=2048)]
    ca_file: Annotated[str, Meta(max_length=4096)] = ""
    interval_seconds: Annotated[float, _SECONDS] = 60.0
    timeout_seconds: Annotated[float, _SECONDS] = 60.0


def provider(config: Mapping[str, Any], credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider `ufm`; `config` is its configuration, `credentials` are the files of its Secret.

    Raises:
        ProviderFailed: the configuration or the Secret is not valid.
    """
    settings = parse_config(config, UfmConfig)
    path, secret = _authentication(credentials)
    headers = {"Authorization": f"Basic {secret}"}
    source = HttpsSource(settings.url, settings.ca_file, headers, settings.timeout_seconds)
    read = partial(_read, source, path, Counted(settings.adapters, settings.switches))
    return PollingProvider("ufm", read, settings.interval_seconds, timeout=settings.timeout_seconds)


def _authentication(credentials: Mapping[str, bytes]) -> tuple[str, str]:
    """Return the path of the API and the value behind `Basic`."""
    token, user, password = (credentials.get(key, b"").strip() for key in ("token", "username", "password"))
    if token:
        if not token.isascii() or not token.decode("ascii").isprintable():
            raise ProviderFailed("has a token that is not one line of ASCII")
        return "/ufmRestV3", token.decode("ascii")
    if not user or not password:
        raise ProviderFailed(
            "needs a Secret with the keys username and password, or token (secret of its entry in the chart)"
        )
    return "/ufmRest", base64.b64encode(user + b":" + password).decode("ascii")


def _read(source: HttpsSource, path: str, counted: Counted, known: Known) -> FabricDiscovery:
    """Return the HyperNodes of all ports."""
    try:
        subnets = (subnet(_pages(source, path)),)
    except OutputUnreadable as error:
        raise ProviderFailed(f"cannot read the HTTPS server in its url: {error}") from None
    return from_subnets(subnets, known.view.fabrics("Ports"), known.nodes, known.existing, counted=counted)


def _pages(source: HttpsSource, path: str) -> list[Page]:
    """Return all pages of ports.

    Where UFM says how many ports there are, all must come, whatever number of them it puts on a page. Otherwise a page
    with another number of rows than requested is the last one. So is a repeated one: not every version of UFM divides
    its ports into pages.

    Raises:
        OutputUnreadable: not all ports came, or an answer cannot be read.
    """
    pages: list[Page] = []
    rows = 0
    for number in range(1, _MAX_PAGES + 1):
        page = decode(source.get(f"{path}/resources/ports?page_number={number}&rpp={PAGE_ROWS}"))
        if pages and page.rows == pages[-1].rows:
            break
        pages.append(page)
        rows += len(page.rows)
        if rows >= page.total if page.total else len(page.rows) != PAGE_ROWS:
            break
    else:
        raise OutputUnreadable(f"UFM has more than {_MAX_PAGES} pages of ports")
    if rows < page.total:
        raise OutputUnreadable(f"UFM has {page.total} ports and answers with {rows}, so the network is not whole")
    return pages
