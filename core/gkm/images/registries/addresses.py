"""Strict parsing of addresses that registries send, so that the checked address is the contacted address.

If two parsers see different hosts in one address, credentials leak. So an address has no user, no backslash, no control
character, and its host must be a plain one.
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
    """An http address: scheme, host and port in one canonical spelling, and the whole text."""

    scheme: str
    host: str
    port: int
    url: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port, which are equal for two addresses of the same server (RFC 6454)."""
        return self.scheme, self.host, self.port


class InvalidAddress(ValueError):
    """The text is no address, or an ambiguous one."""


class NotHttpAddress(InvalidAddress):
    """The scheme is not http or https; the message is the scheme."""


def parse_address(text: str, base: str = "") -> Address:
    """Return the address in `text`, which may be relative to `base`.

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
