"""The proxies of the environment: HTTP_PROXY, HTTPS_PROXY and NO_PROXY with the meaning that Go programs give them.

The other programs on a node are configured in Go's terms, including networks in NO_PROXY, so GKM follows them.
"""

import base64
import os
import re
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from urllib3.util import parse_url

from gkm.images.registries.address_ranges import NetworkKind, kind_of_host
from gkm.images.registries.addresses import Address

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; its repr hides the password."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class InvalidProxy(ValueError):
    """The environment names an invalid proxy. The message does not repeat the value, which may contain a password."""


def proxy_for(address: Address) -> Proxy | None:
    """Return the proxy that the environment names for an address, if any; never for this machine itself.

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
    return os.environ.get(name) or os.environ.get(name.upper(), "")


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
