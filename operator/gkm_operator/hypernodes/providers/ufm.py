"""The provider `ufm`: ports of NVIDIA's UFM Enterprise by its REST API (docs/reference/topology-providers.md).

UFM Enterprise REST API guide, "REST API Complementary Information": basic authentication is for /ufmRest, an access
token for /ufmRestV3 and sent as `Authorization: Basic <token>`. Both come from a Secret.
"""

import base64
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from gkm.api.topology_settings import CountedAdapters
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.infiniband import from_subnets
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.fabrics.ufm import MAX_ROWS, PortRow, decode, subnet
from gkm.topology.providers import Provider, ProviderFailed
from msgspec import Meta

from gkm_operator.hypernodes.providers.https_source import HttpsSource
from gkm_operator.hypernodes.providers.polling import Known, PollingProvider, parse_config

PAGE_ROWS = 1_000
_MAX_PAGES = MAX_ROWS // PAGE_ROWS
_SECONDS = Meta(ge=0.1, le=86_400)


class UfmConfig(CountedAdapters, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`config` of the provider. `timeout_seconds` limits one page, which may have 100 MiB."""

    url: Annotated[str, Meta(max_length=2048)]
    ca_file: Annotated[str, Meta(max_length=4096)] = ""
    interval_seconds: Annotated[float, _SECONDS] = 60.0
    timeout_seconds: Annotated[float, _SECONDS] = 60.0


def provider(config: Mapping[str, Any], credentials: Mapping[str, bytes]) -> Provider:
    """Return the provider.

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
    """Return the HyperNodes of all ports.

    A page with another number of rows than requested is the last one, and so is a repeated one: not every version of
    UFM divides its ports into pages.
    """
    rows: list[PortRow] = []
    before: tuple[PortRow, ...] = ()
    try:
        for number in range(1, _MAX_PAGES + 1):
            page = decode(source.get(f"{path}/resources/ports?page_number={number}&rpp={PAGE_ROWS}"))
            if page == before:
                break
            rows += page
            before = page
            if len(page) != PAGE_ROWS:
                break
        subnets = (subnet(rows),)
    except OutputUnreadable as error:
        raise ProviderFailed(f"cannot read its server: {error}") from None
    return from_subnets(subnets, known.view.fabrics("Ports"), known.nodes, known.existing, counted=counted)
