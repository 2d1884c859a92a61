"""A listen address on a command line: `host:port`, `[::1]:port`, or `:port` for every address."""

import ipaddress
from argparse import ArgumentTypeError

MAX_PORT = 65_535


def parse(text: str) -> tuple[str, int]:
    """Parse `host:port`; the host is "" for all addresses of this machine, IPv4 and IPv6.

    Raises:
        ArgumentTypeError: the text is no address with a port, and no port. GKM does not look up host names: a
            name may resolve to another address tomorrow.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdecimal()) or len(port) > len(str(MAX_PORT)):
        raise ArgumentTypeError(f"{text!r} is not host:port")
    if int(port) > MAX_PORT:
        raise ArgumentTypeError(f"{text!r}: the last port is {MAX_PORT}")
    if not host:
        return "", int(port)
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: {bare!r} is not an IP address") from None
    # Without brackets the port of an IPv6 address looks like its last group.
    if bracketed != (address.version == 6):  # noqa: PLR2004 -- IPv6
        raise ArgumentTypeError(f"{text!r} is not host:port; write an IPv6 address in brackets")
    return str(address), int(port)
