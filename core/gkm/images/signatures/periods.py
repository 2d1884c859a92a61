"""The verified times of a signature, and whether its log and authorities were trusted at those times.

The log's signature confirms a time with Rekor 1. Rekor 2 states no time, so a signed timestamp (RFC 3161)
proves when a signature existed. A timestamp is accepted if a trusted authority signed it within its period of validity.
Other tokens are ignored, as in sigstore-python: a bundle may hold tokens of authorities that this trusted root does
not name.
"""

from collections.abc import Iterable
from datetime import datetime

from cryptography import x509

from gkm.images.signatures import certificates, transparency
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.signature_formats import Signature
from gkm.images.signatures.trust_material import TrustedAuthority, TrustedRoot

MIN_CHAIN = 2
"""The smallest number of certificates in an authority's chain: the signing certificate and a root."""


def check(signature: Signature, certificate: x509.Certificate, root: TrustedRoot) -> LogEntry:
    """Return the log entry of a keyless signature, if its log and authorities were trusted when it was made.

    Raises:
        Untrusted: a time was not trusted, or no trusted service confirms a time.
    """
    if signature.entry is None:
        raise Untrusted("has no log entry, which a signature without a key needs")
    verified = times(signature, signature.entry, root)
    if not verified:
        raise Untrusted("has no confirmed time: its log entry states none, and no trusted authority a timestamp")
    for when in verified:
        certificates.check(certificate, root, when)
    return signature.entry


def times(signature: Signature, entry: LogEntry, root: TrustedRoot) -> tuple[datetime, ...]:
    """Return the confirmed times of a signature: by its log, and by trusted timestamp authorities.

    Raises:
        Untrusted: no trusted log has the entry, or the log was not trusted at that time.
    """
    stamped = (_time(signature.signature, token, root.timestamp_authorities) for token in signature.stamps)
    return transparency.check(entry, root, [time for time in stamped if time is not None])


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
