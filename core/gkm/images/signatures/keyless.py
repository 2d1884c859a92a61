"""Verification of signatures by certificates, offline: keyless ones with a trusted root, others with authorities.

This module verifies the legacy form (annotations with the log's signed timestamp) with the same functions as log
entries of keys. `keyless_bundle` verifies bundles with sigstore-python, which is imported for the first bundle. A
legacy signature without a log entry does not count, unless the policy allows a lookup (`log_lookup`).
"""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gkm.api.policies import ca_issuer
from gkm.api.signers import Signer
from gkm.images.signatures import certificates, entry_body, periods
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.keys import supported
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.trust_material import AuthorityFile, TrustedRootFile


def signer(signature: Signature, root: TrustedRootFile) -> Signer:
    """Verify a keyless signature and return its signer; the caller checks the signed digest and the policy.

    Raises:
        Untrusted: the signature is not valid.
    """
    if signature.form is SignatureForm.BUNDLE:
        # The import takes 54 MiB and 0.7 s; a process whose policies name only keys never needs it.
        from gkm.images.signatures import keyless_bundle  # noqa: PLC0415

        return keyless_bundle.signer(signature, root)
    with certificates.readable():
        certificate = signing_certificate(signature)
        entry = periods.check(signature, certificate, root.trusted)
        entry_body.check(entry, signature, certificate.public_bytes(serialization.Encoding.DER))
        return certificates.holder(certificate)


def signer_of_authority(signature: Signature, authority: AuthorityFile) -> Signer:
    """Verify a signature by a certificate of a private authority and return its signer; the caller checks the rest.

    No log proves when it was made, so the certificate must be valid now.

    Raises:
        Untrusted: the signature is not valid.
    """
    with certificates.readable():
        certificate = signing_certificate(signature)
        certificates.check_issued(certificate, signature.chain, authority.certificates, datetime.now(UTC))
        return Signer(identity=certificates.subject(certificate), issuer=ca_issuer(authority.path))


def signing_certificate(signature: Signature) -> x509.Certificate:
    """Return the certificate in a signature after checking that its key made the signature.

    Raises:
        Untrusted: another key made the signature; or an error of `certificates.readable`.
    """
    certificate = x509.load_der_x509_certificate(signature.certificate)
    key = supported(certificate.public_key())
    if key is None or not key.verifies(signature.signature, signature.signed):
        raise Untrusted("was not made by its certificate, or was changed since")
    return certificate
