"""Registries on this machine usually speak plain http; crane, cosign and oras need no flag for them either."""

import socket
import ssl
from ipaddress import ip_address

_SECONDS = 2.0
"""Time for the handshake, which does not leave this machine."""


def speaks_plain_http(registry: str) -> bool:
    """Return whether a registry (host or host:port) is on this machine and does not speak TLS."""
    host, port = _split(registry)
    return _is_loopback(host) and not _speaks_tls(host, port)


def _split(registry: str) -> tuple[str, int]:
    host, colon, port = registry.rpartition(":")
    if not colon or not port.isdecimal():
        return registry.strip("[]"), 443
    return host.strip("[]"), int(port)


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
