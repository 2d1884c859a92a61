"""Tell host interfaces from switch ports by their names. Pure."""

import re

# systemd.net-naming-scheme(7), what drivers name themselves, and bridges in hosts with the ports of their guests.
_ADAPTER = re.compile(
    r"(?:eth\d|en[opsx]|ib[ps\d]|wl|usb|bond\d|mlx\d|[Mm]gmt|Management|(?:br|virbr|docker|vmbr|ovsbr|vnet|tap)-?\d)",
    re.ASCII,
)


def is_host_interface(name: str) -> bool:
    """Return whether the name of a network interface is usual for a host, or for a switch's management port."""
    return _ADAPTER.match(name) is not None
