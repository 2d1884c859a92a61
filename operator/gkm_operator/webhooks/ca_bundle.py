"""Bundles of CAs as bytes: which certificates a bundle keeps, and which of them are copied. Pure.

Every replica of admission adds its own CAs to one bundle, and the controllers copy the bundle. The account of admission
may be in the hands of an attacker, so a copy is encoded anew from the certificates that were found, within bounds.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

CLOCKS_DIFFER = timedelta(minutes=10)
"""How far the clocks of two machines may differ: a CA is valid this much before its issue, and is kept this much after
its end."""

MAX_CAS = 32
"""Two for each replica that renews, and those of former pods, which may still serve during a rollout. At most 20 kB of
ours in an object of 1.5 MB."""

SAFE_CAS = MAX_CAS // 2
"""A running replica keeps its CA among the first ones, up to this number. So only the CA of a former replica reaches
the end of the list and drops off, unless more than this are added between two checks of a replica, or there are more
than eight replicas."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\r?\n[A-Za-z0-9+/=\r\n]{1,2048}-----END CERTIFICATE-----")
"""Three times the size of our CAs: the largest bundle fits eight times into a webhook configuration."""


def merged_bundle(before: bytes, ours: Sequence[bytes], now: datetime) -> bytes | None:
    """Return a bundle that begins with our CAs; None when the present bundle has them in safe places.

    The other CAs follow in their order, without expired ones, duplicates, and anything that is not a certificate. An
    expired CA alone does not cause a write: replicas whose clocks disagree would overwrite each other forever.
    """
    own = [x509.load_pem_x509_certificate(pem) for pem in ours]
    found = list(_certificates(before))
    if all(ca in found[:SAFE_CAS] for ca in own):
        return None
    unexpired = [ca for ca in found if now - CLOCKS_DIFFER < ca.not_valid_after_utc]
    merged = list(dict.fromkeys((*own, *unexpired)))[:MAX_CAS]
    return b"".join(ca.public_bytes(Encoding.PEM) for ca in merged)


def has_all(bundle: bytes, authorities: Sequence[bytes]) -> bool:
    """Return whether a bundle holds all of these CAs."""
    found = set(_certificates(bundle))
    return all(x509.load_pem_x509_certificate(pem) in found for pem in authorities)


def copied_bundle(pem: bytes) -> bytes:
    """Return the certificates of a published bundle, MAX_CAS at most, and no other text; b"" if there is none."""
    return b"".join(ca.public_bytes(Encoding.PEM) for ca in islice(_certificates(pem), MAX_CAS))


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for found in _CERTIFICATE.findall(pem):
        try:
            yield x509.load_pem_x509_certificate(found)
        except (ValueError, x509.InvalidVersion):
            continue  # an API server cannot read it either
