"""Verification of signed timestamps (RFC 3161) with the timestamp authorities of the trusted root.

Rekor 2 states no time of its own, so a timestamp proves when a signature existed. A token counts if a trusted authority
signed it within its period of validity. Other tokens are ignored, as in sigstore-python: a bundle may hold tokens of
authorities that this trusted root does not name.
"""

from collections.abc import Iterable
from datetime import datetime

from gkm.images.signatures.trusted_root import TrustedAuthority, TrustedRoot

MIN_CHAIN = 2
"""Certificates of an authority: at least the signing certificate and a root."""


def verified(signature: bytes, tokens: Iterable[bytes], root: TrustedRoot) -> tuple[datetime, ...]:
    """Return the times of the tokens over a signature that a trusted timestamp authority signed."""
    times = (_time(signature, token, root.timestamp_authorities) for token in tokens)
    return tuple(time for time in times if time is not None)


def _time(signature: bytes, token: bytes, authorities: Iterable[TrustedAuthority]) -> datetime | None:
    # The import takes 0.2 s; a process that verifies only keys and entries of Rekor 1 never needs it.
    from rfc3161_client import VerifierBuilder, decode_timestamp_response  # noqa: PLC0415

    for authority in authorities:
        if len(authority.certificates) < MIN_CHAIN:
            continue
        first, *between, last = authority.certificates
        try:
            response = decode_timestamp_response(token)
            verifier = VerifierBuilder(tsa_certificate=first, intermediates=between, roots=[last]).build()
            verifier.verify_message(response, signature)
            when = response.tst_info.gen_time
        except Exception:  # noqa: BLE001, S112 -- crafted DER raises many errors; the token does not count
            continue
        if authority.period.contains(when):
            return when
    return None
