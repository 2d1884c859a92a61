"""The verified times of a signature, and whether its log and authorities were trusted at those times."""

from datetime import datetime

from cryptography import x509

from gkm.images.signatures import certificates, timestamps, transparency
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.signature_formats import Signature
from gkm.images.signatures.transparency import RekorEntry
from gkm.images.signatures.trusted_root import TrustedRoot


def check(signature: Signature, certificate: x509.Certificate, root: TrustedRoot) -> None:
    """Check that the log, the authority and the certificate log were trusted at every verified time of a signature.

    Raises:
        Untrusted: one of them was not trusted, or no trusted service confirms a time.
    """
    if signature.entry is None:
        raise Untrusted("has no log entry, which a signature without a key needs")
    verified = times(signature, signature.entry, root)
    if not verified:
        raise Untrusted("has a log entry without a signed time")
    for when in verified:
        certificates.check(certificate, root, when)


def times(signature: Signature, entry: RekorEntry, root: TrustedRoot) -> tuple[datetime, ...]:
    """Return the times of a signature that its log and trusted timestamp authorities confirm.

    Raises:
        Untrusted: no trusted log has the entry, or the log was not trusted at that time.
    """
    return transparency.check(entry, root, timestamps.verified(signature.signature, signature.stamps, root))
