"""Verification of keyless bundles by sigstore-python with a configured trusted root. Only this module imports sigstore.

sigstore-python checks the log's proof and checkpoint, the signed time or timestamp, the certificate chain at that time,
the certificate log, the signature, and that the log entry describes this signature. It ignores `validFor` of
certificate authorities and the end of `validFor` of logs (sigstore-python 4.5). So this module checks the log, the
chain and the certificate log again at each verified time. GKM compares the identity afterwards, so that a finding can
name the actual signer.
"""

import re

from cryptography import x509
from sigstore.models import Bundle
from sigstore.models import TrustedRoot as SigstoreRoot
from sigstore.verify import Verifier

from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.hoststate.lru import LRUCache
from gkm.images.signatures import certificates, periods
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.signature_formats import IN_TOTO, Signature
from gkm.images.signatures.trust_material import MAX_CACHED, TrustedRootFile

MAX_REASON = 160
_DUMP = re.compile(r": expected | \(encountered ")


class _AnyHolder:
    """A policy for sigstore-python that accepts every holder; GKM compares the holder itself."""

    def verify(self, cert: x509.Certificate) -> None:
        """Accept the holder."""


def signer(signature: Signature, root: TrustedRootFile) -> Signer:
    """Verify a keyless bundle and return its signer; the caller checks the signed digest and the policy.

    Raises:
        Untrusted: the bundle is not valid.
        GKMError: SIGNATURE_INVALID if sigstore-python cannot use the trusted root.
    """
    verifier = _VERIFIERS.get_or_create(root, lambda: _verifier_of(root))
    try:
        bundle = Bundle.from_json(signature.bundle)
        payload_type, payload = verifier.verify_dsse(bundle, _AnyHolder())
        periods.check(signature, bundle.signing_certificate, root.trusted)
        holder = certificates.holder(bundle.signing_certificate)
    except Untrusted:
        raise
    except Exception as error:
        # A crafted bundle makes sigstore-python raise errors of pydantic, cryptography and struct besides its own. All
        # of them mean that the bundle does not count.
        raise Untrusted(f"cannot be verified: {_line(error)}") from error
    if payload_type != IN_TOTO or payload != signature.payload:
        raise Untrusted("has another payload in GKM's reading than in sigstore's")
    return holder


_VERIFIERS: LRUCache[TrustedRootFile, Verifier] = LRUCache(MAX_CACHED)


def _verifier_of(root: TrustedRootFile) -> Verifier:
    try:
        return Verifier(trusted_root=SigstoreRoot.from_file(root.path))
    except Exception as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"trusted root {root.path!r} cannot be used for signatures without a key: {_line(error)}",
            "it needs certificate authorities, logs and certificate logs",
        ) from error


def _line(error: Exception) -> str:
    # Some messages end with a dump of both objects.
    text = _DUMP.split(" ".join(str(error).split()))[0] or type(error).__name__
    return "".join(c for c in text if c.isprintable())[:MAX_REASON]
