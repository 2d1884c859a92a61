"""Certificates of keyless signatures: the holder, the issuing authority, and the proof of publication (SCT).

Source: sigstore/fulcio docs/certificate-specification.md and oid-info.md; RFC 6962, 3.2, for the SCT.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.x509 import certificate_transparency as ct
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, PolicyBuilder, Store, VerificationError

from gkm.api.policies import CA_ISSUER
from gkm.api.signers import MAX_NAME, Signer
from gkm.images.signatures import keys, trust_material
from gkm.images.signatures.keys import MALFORMED
from gkm.images.signatures.trust_material import TrustedRoot

_ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_USER_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
_NOT_ISSUED: tuple[type[Exception], ...] = (VerificationError, *MALFORMED)
_MAX_DER = 1 << 24
MAX_BETWEEN = 4
"""Limit of intermediate certificates: the signer chooses them, and each costs checks."""


class Untrusted(Exception):
    """A signature of an image is not valid; the message is the end of a sentence that begins with "it"."""


@contextmanager
def readable() -> Iterator[None]:
    """Raise Untrusted if the block fails on a malformed certificate or a missing extension.

    Raises:
        Untrusted: the certificate is malformed, or lacks an extension.
    """
    try:
        yield
    except x509.ExtensionNotFound as error:
        raise Untrusted("was made with a certificate that lacks what Sigstore's certificates have") from error
    except MALFORMED as error:
        raise Untrusted("was made with a certificate that cannot be read") from error


def check(certificate: x509.Certificate, root: TrustedRoot, when: datetime) -> None:
    """Check that an authority of the trusted root issued a certificate, and that it was valid for signing at `when`.

    Raises:
        Untrusted: the certificate was not valid.
    """
    if not certificate.not_valid_before_utc <= when <= certificate.not_valid_after_utc:
        raise Untrusted("was made when its certificate was not valid")
    issuer = _issuer(certificate, root, when)
    _check_purpose(certificate)
    _check_sct(certificate, issuer, root)


def check_issued(
    certificate: x509.Certificate, between: bytes, trusted: Sequence[x509.Certificate], when: datetime
) -> None:
    """Check that a trusted authority issued a certificate, which is valid for signing at `when`.

    `between` has further certificates as PEM, which the signer chose.

    Raises:
        Untrusted: the certificate is not valid, or has more than MAX_BETWEEN certificates beside it.
    """
    if not certificate.not_valid_before_utc <= when <= certificate.not_valid_after_utc:
        raise Untrusted("was made with a certificate that is not valid now: sign the image again")
    further = x509.load_pem_x509_certificates(between) if between else []
    if len(further) > MAX_BETWEEN:
        raise Untrusted(f"has a chain of {len(further)} certificates, at most {MAX_BETWEEN} are read")
    _chain(certificate, further, trusted, when)
    _check_purpose(certificate)


def subject(certificate: x509.Certificate) -> str:
    """Return the single name that a certificate states; call `check_issued` first.

    Raises:
        Untrusted: the certificate states no name, or several, or the name cannot be shown.
    """
    names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    if len(names) != 1:
        raise Untrusted("was made with a certificate that does not state exactly one name")
    name = names[0].value if isinstance(names[0], x509.DNSName) else _name(names[0])
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME:
        raise Untrusted("was made with a certificate of a holder whose name cannot be shown")
    return name


def _check_purpose(certificate: x509.Certificate) -> None:
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if not usage.digital_signature or ExtendedKeyUsageOID.CODE_SIGNING not in purposes:
        raise Untrusted("was made with a certificate that is not for signing code")


def holder(certificate: x509.Certificate) -> Signer:
    """Return the holder of a checked certificate as a signer; call `check` first.

    Raises:
        Untrusted: the certificate does not name exactly one holder and one provider.
    """
    names = [_name(name) for name in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]
    issuers = set()
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.UnrecognizedExtension):
            if extension.oid == _ISSUER_V1:
                issuers.add(extension.value.value.decode())
            elif extension.oid == _ISSUER_V2:
                issuers.add(asn1.decode_der(str, extension.value.value))
    if len(names) != 1 or len(issuers) != 1:
        raise Untrusted("was made with a certificate that does not name one holder and one provider")
    found = Signer(identity=names[0], issuer=issuers.pop())
    if found.issuer.startswith(CA_ISSUER):
        raise Untrusted("was made with a certificate that names a file in place of a provider")
    if not all(text.isprintable() and 0 < len(text) <= MAX_NAME for text in (found.identity, found.issuer)):
        raise Untrusted("was made with a certificate of a holder whose name cannot be shown")
    return found


def _name(name: x509.GeneralName) -> str:
    if isinstance(name, x509.OtherName) and name.type_id == _USER_NAME:
        return asn1.decode_der(str, name.value)
    if isinstance(name, x509.RFC822Name | x509.UniformResourceIdentifier):
        return name.value
    raise Untrusted("was made with a certificate whose holder is no address and no URI")


def _issuer(certificate: x509.Certificate, root: TrustedRoot, when: datetime) -> x509.Certificate:
    trusted = [c for authority in root.authorities if authority.period.contains(when) for c in authority.certificates]
    if not trusted:
        raise Untrusted("was made at a time for which no certificate authority is trusted")
    return _chain(certificate, (), trusted, when)[1]


def _chain(
    certificate: x509.Certificate,
    between: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    when: datetime,
) -> list[x509.Certificate]:
    """Return the chain from a certificate to a trusted one."""
    # As in sigstore-python: the callers verify the purpose, because x509's policies support only servers and clients.
    purpose = (x509.ExtendedKeyUsage, Criticality.NON_CRITICAL, None)
    builder = (
        PolicyBuilder()
        .store(Store(list(trusted)))
        .time(when)
        .max_chain_depth(MAX_BETWEEN)
        .extension_policies(
            ca_policy=ExtensionPolicy.webpki_defaults_ca().may_be_present(*purpose),
            ee_policy=ExtensionPolicy.webpki_defaults_ee().may_be_present(*purpose),
        )
    )
    try:
        return builder.build_client_verifier().verify(certificate, list(between)).chain
    except _NOT_ISSUED as error:
        raise Untrusted("was made with a certificate that no trusted authority issued") from error


def _check_sct(certificate: x509.Certificate, issuer: x509.Certificate, root: TrustedRoot) -> None:
    stamps = list(certificate.extensions.get_extension_for_class(x509.PrecertificateSignedCertificateTimestamps).value)
    if len(stamps) != 1:
        raise Untrusted("was made with a certificate that does not hold exactly one timestamp of a certificate log")
    stamp = stamps[0]
    log = trust_material.find_log(root.certificate_logs, stamp.log_id)
    issuer_key = keys.der(issuer.public_key())
    signed = _sct_signed_data(stamp, certificate.tbs_precertificate_bytes, hashlib.sha256(issuer_key).digest())
    at = stamp.timestamp.replace(tzinfo=UTC)
    if log is None or not log.period.contains(at) or not log.key.verifies(stamp.signature, signed):
        raise Untrusted("was made with a certificate that no trusted certificate log has seen")


def _sct_signed_data(stamp: ct.SignedCertificateTimestamp, tbs: bytes, issuer_key_hash: bytes) -> bytes:
    """Return the bytes that a certificate log signs for a precertificate (RFC 6962, 3.2: digitally-signed struct)."""
    if stamp.entry_type is not ct.LogEntryType.PRE_CERTIFICATE or len(tbs) >= _MAX_DER:
        raise Untrusted("was made with a certificate whose timestamp is of an unknown kind")
    at = stamp.timestamp.replace(tzinfo=UTC)
    milliseconds = int(at.timestamp()) * 1000 + at.microsecond // 1000
    extensions = stamp.extension_bytes
    return (
        struct.pack("!BBQH", stamp.version.value, 0, milliseconds, stamp.entry_type.value)
        + issuer_key_hash
        + len(tbs).to_bytes(3, "big")
        + tbs
        + struct.pack("!H", len(extensions))
        + extensions
    )
