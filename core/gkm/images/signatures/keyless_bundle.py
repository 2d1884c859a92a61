"""Keyless bundles, checked by sigstore-python with a trusted root of ours. The only module that imports sigstore.

It checks the log's proof and checkpoint, the signed time or timestamp, the chain at that time, the certificate's own
log, the signature, and that the log entry is about this signature. It does not look at `validFor` of certificate
authorities, nor at the end of that of logs (sigstore-python 4.5), so we check log, chain and certificate log again, at
each verified time. The identity is compared by us, after that, so that the answer can say who did sign.
"""

import re

from cryptography import x509
from sigstore.models import Bundle
from sigstore.models import TrustedRoot as SigstoreRoot
from sigstore.verify import Verifier

from gkm.api.errors import GKMError, Reason
from gkm.images.signatures import certificates, periods
from gkm.images.signatures.certificates import Holder, Untrusted
from gkm.images.signatures.signature_formats import IN_TOTO, Signature
from gkm.images.signatures.trust_material import TrustedRootFile

MAX_REASON = 160
_DUMP = re.compile(r": expected | \(encountered ")


class _AnyHolder:
    """A policy of sigstore-python's kind that leaves the holder to us."""

    def verify(self, cert: x509.Certificate) -> None:
        """Accept the holder."""


def signer(signature: Signature, root: TrustedRootFile) -> Holder:
    """Return who made a bundle, all but its claims and the policy's identities being checked.

    Raises:
        Untrusted: it does not count, whoever made it.
        GKMError: SIGNATURE_INVALID, when sigstore-python cannot use the trusted root.
    """
    verifier = root.cached(_verifier)
    try:
        bundle = Bundle.from_json(signature.bundle)
        payload_type, payload = verifier.verify_dsse(bundle, _AnyHolder())
        periods.check(signature, bundle.signing_certificate, root.trusted)
        holder = certificates.holder(bundle.signing_certificate)
    except Untrusted:
        raise
    except Exception as error:
        # Besides its own errors it lets through those of pydantic, cryptography and struct, whatever a made-up bundle
        # provokes. All of them mean the same: this bundle does not count.
        raise Untrusted(f"cannot be verified: {_line(error)}") from error
    if payload_type != IN_TOTO or payload != signature.payload:
        raise Untrusted("is read in two ways")
    return holder


def _verifier(path: str) -> Verifier:
    try:
        return Verifier(trusted_root=SigstoreRoot.from_file(path))
    except Exception as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"trusted root {path!r} cannot be used for signatures without a key: {_line(error)}",
            "it needs certificate authorities, logs and certificate logs",
        ) from error


def _line(error: Exception) -> str:
    # Some messages end in a dump of both objects.
    text = _DUMP.split(" ".join(str(error).split()))[0] or type(error).__name__
    return "".join(c for c in text if c.isprintable())[:MAX_REASON]
