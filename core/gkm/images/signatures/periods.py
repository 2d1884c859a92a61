"""Was everything that a keyless signature rests on trusted at the time when it was made?"""

from cryptography import x509

from gkm.images.signatures import certificates, timestamps, transparency
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.parsing import Signature
from gkm.images.signatures.trusted_root import TrustedRoot


def check(signature: Signature, certificate: x509.Certificate, root: TrustedRoot) -> None:
    """Check that log, authority and certificate log were trusted at every verified time of a signature.

    Raises:
        Untrusted: one of them was not, or no trusted service states a time.
    """
    if signature.entry is None:
        raise Untrusted("has no log entry, which a signature without a key needs")
    stamped = timestamps.verified(signature.signature, signature.stamps, root)
    times = transparency.check(signature.entry, root, stamped)
    if not times:
        raise Untrusted("has a log entry without a signed time")
    for when in times:
        certificates.check(certificate, root, when)
