"""Which CAs a caBundle holds: a decision about bytes, whoever wrote them."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gkm_operator.admission.certificates.issue import CLOCKS_DIFFER

PLACES = 32
"""Two for each replica that renews, and those of the pods before, which may still serve while a rollout is under way.
20 kB in an object of 1.5 MB at most."""

SAFE = PLACES // 2
"""Who lives keeps its CA among so many first ones. So only a CA that nobody cares for comes to the end of the list and
falls off it, unless more than this are added between two looks of a replica, or there are more than eight replicas."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\r?\n[A-Za-z0-9+/=\r\n]{1,8192}-----END CERTIFICATE-----")


def merged_bundle(before: bytes, ours: Sequence[bytes], now: datetime) -> bytes | None:
    """Return a bundle that begins with our CAs; None where they have safe places in the one there is.

    After ours come the others in their order, without those that have expired, duplicates, and what is no certificate.
    An expired one alone is no reason to write: replicas whose clocks disagree would write for ever.
    """
    own = [x509.load_pem_x509_certificate(one) for one in ours]
    found = list(_certificates(before))
    if all(one in found[:SAFE] for one in own):
        return None
    living = [one for one in found if now - CLOCKS_DIFFER < one.not_valid_after_utc]
    kept = list(dict.fromkeys((*own, *living)))[:PLACES]
    return b"".join(one.public_bytes(Encoding.PEM) for one in kept)


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for found in _CERTIFICATE.findall(pem):
        try:
            yield x509.load_pem_x509_certificate(found)
        except (ValueError, x509.InvalidVersion):
            continue  # an API server cannot read it either
