"""Registries on this machine usually speak plain http; crane, cosign and oras need no flag for them either."""

import socket
import ssl
from ipaddress import ip_address

from gkm.images.registries.credentials import split_server

_SECONDS = 2.0
"""Time for the handshake, which does not leave this machine."""


def speaks_plain_http(registry: str) -> bool:
    """Return whether a registry (host or host:port) is on this machine and does not speak TLS."""
    address, port, _ = split_server(registry)
    host = address.strip("[]")
    return _is_loopback(host) and not _speaks_tls(host, int(port or 443))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # This only detects TLS and sends no data; the registry client checks the certificate.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except (OSError, OverflowError):
        return False
    return True
