"""Addresses that registries send, read strictly: what is compared here must be what is connected to later.

Two readers that see another host in one address are how credentials get lost, so nothing is left to be understood
differently: no user, no backslash, no control character, no host that is not plainly one.
"""

import re
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

_AUTHORITY = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
)
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]")
_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535
MAX_LENGTH = 16 << 10
"""Signed addresses of blob stores have some thousand characters."""


@dataclass(frozen=True, slots=True)
class Address:
    """An http address: where it leads, in one spelling only, and the whole of it."""

    scheme: str
    host: str
    port: int
    url: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return what must be equal for two addresses to lead to the same server (RFC 6454)."""
        return self.scheme, self.host, self.port


class InvalidAddress(ValueError):
    """It is none, or not plainly one."""


class NotHttpAddress(InvalidAddress):
    """It leads to something that is no http server; the scheme is named."""


def parse_address(text: str, base: str = "") -> Address:
    """Return the address in `text`, which may be relative to `base`.

    Raises:
        NoAddress: also as NotHTTP.
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
