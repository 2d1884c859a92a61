"""Parse addresses from registries strictly, so that the checked one is the contacted one; classify IP addresses. Pure.

If two parsers see different hosts in one address, credentials leak. So an address has no user, no backslash, no control
character, and its host must be a plain one.

An IP address is public, private, or a part of this machine and its cloud. An IPv6 address that carries an IPv4 address
is also treated as that address (RFC 4291 mapped and compatible, RFC 2765 translated, RFC 6052 NAT64, RFC 3056 6to4),
because a gateway delivers to it. The ranges come from IANA's registries of special-purpose addresses; an address that
is not known to be public is treated as private.
"""

import re
import socket
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urljoin, urlsplit

_AUTHORITY = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
)
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535
MAX_LENGTH = 16 << 10
"""Signed addresses of blob stores have some thousand characters."""
_LOCAL_NAMES = frozenset({"localhost", "metadata.google.internal", "metadata.goog"})
_LOCAL_4 = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16")))
_LOCAL_6 = tuple(map(ip_network, ("::/128", "::1/128", "fe80::/10")))
_PUBLIC_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "3fff::/20")))


@dataclass(frozen=True, slots=True)
class Address:
    """An http or https address: scheme, host and port in one canonical spelling, and the whole text."""

    scheme: str
    host: str
    port: int
    url: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port, which are equal for two addresses of the same server (RFC 6454)."""
        return self.scheme, self.host, self.port


class InvalidAddress(ValueError):
    """The text is no http address, or programs would parse it differently."""


class NotHttpAddress(InvalidAddress):
    """The address has another scheme than http or https; the message is the scheme."""


def parse_address(text: str, base: str = "") -> Address:
    """Return the http address in `text`, which may be relative to `base`.

    Raises:
        InvalidAddress: also as NotHttpAddress.
    """
    if len(text) > MAX_LENGTH or _AMBIGUOUS.search(text):
        raise InvalidAddress("too long, or with characters that no address has")
    try:
        parts = urlsplit(urljoin(base, text))
    except ValueError as error:
        raise InvalidAddress("no address") from error
    if parts.scheme not in _PORTS:
        raise NotHttpAddress(parts.scheme[:20])
    match = _AUTHORITY.fullmatch(parts.netloc)
    port = int(match["port"] or _PORTS[parts.scheme]) if match else 0
    if match is None or not 0 < port <= _MAX_PORT:
        raise InvalidAddress("no plain host and port")
    return Address(parts.scheme, match["host"].strip("[]").lower(), port, parts.geturl())


class NetworkKind(IntEnum):
    """The kind of network of an address: public, private or local; a larger value is more sensitive."""

    PUBLIC = 0
    PRIVATE = 1
    LOCAL = 2
    """This machine, its links, or the service from which a cloud hands out credentials to its machines."""


_METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure
            "192.0.0.192",  # Oracle Cloud
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google Cloud
            "fd00:42::42",  # Scaleway
        ),
    )
)
_PRIVATE_4 = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8",
            "100.64.0.0/10",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)
_CARRIERS = (
    # The network, the shift that gives the IPv4 address, and the least sensitive kind of the whole network.
    (ip_network("::ffff:0:0/96"), 0, NetworkKind.PUBLIC),
    (ip_network("::ffff:0:0:0/96"), 0, NetworkKind.PUBLIC),
    (ip_network("64:ff9b::/96"), 0, NetworkKind.PUBLIC),
    (ip_network("2002::/16"), 80, NetworkKind.PUBLIC),
    (ip_network("64:ff9b:1::/48"), 0, NetworkKind.PRIVATE),
    (ip_network("::/96"), 0, NetworkKind.PRIVATE),
)


def kind(address: str) -> NetworkKind:
    """Return the network of an IP address such as `fe80::1%eth0`; LOCAL for text that is no address."""
    found = _literal(address)
    return NetworkKind.LOCAL if found is None else _kind(found)


def kind_of_host(host: str) -> NetworkKind:
    """Return the kind of a host before its name is resolved: of an address, or LOCAL for this machine's names.

    Every other name is PUBLIC here; connections check its addresses once they are resolved.
    """
    name = host.lower().rstrip(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return NetworkKind.LOCAL
    found = _literal(host)
    return NetworkKind.PUBLIC if found is None else _kind(found)


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    text = host.strip("[]").partition("%")[0].rstrip(".")
    try:
        return ip_address(text)
    except ValueError:
        pass
    try:
        # Resolvers and proxies accept `127.1`, `0x7f.0.0.1` and `2130706433` as addresses.
        return IPv4Address(socket.inet_aton(text))
    except (OSError, UnicodeError, ValueError):
        return None


def _kind(address: IPv4Address | IPv6Address) -> NetworkKind:
    if address in _METADATA:
        return NetworkKind.LOCAL
    if isinstance(address, IPv4Address):
        if any(address in network for network in _LOCAL_4):
            return NetworkKind.LOCAL
        return NetworkKind.PRIVATE if any(address in network for network in _PRIVATE_4) else NetworkKind.PUBLIC
    if any(address in network for network in _LOCAL_6):
        return NetworkKind.LOCAL
    for network, shift, least in _CARRIERS:
        if address in network:
            return max(least, _kind(IPv4Address(int(address) >> shift & 0xFFFFFFFF)))
    public = address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
    return NetworkKind.PUBLIC if public else NetworkKind.PRIVATE
