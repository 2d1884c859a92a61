"""Parsers for the two stored forms of a signature, and of an attestation; they do not verify.

Legacy: a layer with a "simple signing" payload and annotations with the signature, in the tag `sha256-<hex>.sig`.
A legacy attestation is a DSSE envelope in the tag `sha256-<hex>.att`, with the same annotations.
Bundle v0.3: a Sigstore bundle around a DSSE envelope with an in-toto statement, stored as a referrer of the image.
Source: cosign's specs/SIGNATURE_SPEC.md and specs/BUNDLE_SPEC.md; sigstore/protobuf-specs, sigstore_bundle.proto.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from msgspec import UNSET, Struct, field

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode
from gkm.images.signatures import log_entries
from gkm.images.signatures.bundles import BUNDLE_PREFIX, Bundle, DSSEEnvelope, LogEntry, TimestampVerificationData
from gkm.images.signatures.keys import MALFORMED
from gkm.images.signatures.log_entries import MAX_ANNOTATION

SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
SIMPLE_SIGNING_TYPE = "cosign container image signature"
IN_TOTO = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
STATEMENT_TYPES = (STATEMENT_TYPE, "https://in-toto.io/Statement/v0.1")
"""cosign attests by the older one, which has the same fields."""
DSSE = "application/vnd.dsse.envelope.v1+json"
SIGN_PREDICATE = "https://sigstore.dev/cosign/sign/v1"
SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"
CERTIFICATE_ANNOTATION = "dev.sigstore.cosign/certificate"
CHAIN_ANNOTATION = "dev.sigstore.cosign/chain"
ENTRY_ANNOTATION = "dev.sigstore.cosign/bundle"
LEGACY_TYPE_ANNOTATION = "predicateType"
"""The annotation with the predicate type on the layer of a legacy attestation."""


_NO_STATEMENT = "it is no envelope of one signed statement"


class SignatureForm(StrEnum):
    """The form in which a signature is stored: legacy or bundle."""

    LEGACY = "legacy"
    BUNDLE = "bundle-v0.3"


@dataclass(frozen=True, slots=True)
class Signature:
    """A parsed signature or attestation of an image, not verified.

    `signed` holds the bytes that the signature must cover, `claims` the image digests that the signed text names.
    `payload` is the payload of a DSSE envelope, of which `signed` is the encoding. A keyless signature has a
    `certificate` (DER). `bundle` is the decoded bundle, encoded again for sigstore-python; `stamps` are its timestamp
    tokens. `chain` has the certificates between `certificate` and an authority as PEM; the signer chose them.
    `problem` is the reason why a signature is unusable; such a signature is never valid.
    """

    form: SignatureForm
    signed: bytes = b""
    signature: bytes = b""
    claims: tuple[str, ...] = ()
    payload: bytes | None = None
    certificate: bytes = b""
    entry: LogEntry | None = None
    bundle: bytes = b""
    problem: str = ""
    stamps: tuple[bytes, ...] = ()
    chain: bytes = b""


class _ManifestClaim(Struct):
    digest: str = field(default="", name="docker-manifest-digest")


class _Critical(Struct):
    type: str
    image: _ManifestClaim


class _SimpleSigning(Struct):
    critical: _Critical


class _Subject(Struct):
    digest: dict[str, str]


class _Statement(Struct, rename={"type": "_type", "predicate_type": "predicateType", "subject": "subject"}):
    type: str
    predicate_type: str
    subject: list[_Subject]


def parse_legacy(payload: bytes, annotations: dict[str, str]) -> Signature:
    """Parse a legacy signature: a simple-signing payload and the annotations of its layer.

    Raises:
        GKMError: METADATA_INVALID.
    """
    try:
        signature = base64.b64decode(annotations.get(SIGNATURE_ANNOTATION, ""), validate=True)
    except ValueError as error:
        raise GKMError(Reason.METADATA_INVALID, "the annotation with the signature is not base64") from error
    claim = decode(payload, _SimpleSigning, "signature payload").critical
    if claim.type != SIMPLE_SIGNING_TYPE:
        return Signature(SignatureForm.LEGACY, problem=f"it signs a {claim.type[:60]!r}, not an image")
    certificate, entry = _annotated(annotations)
    chain = annotations.get(CHAIN_ANNOTATION, "")
    return Signature(
        SignatureForm.LEGACY,
        payload,
        signature,
        (claim.image.digest,),
        certificate=certificate,
        entry=entry,
        chain=chain.encode() if len(chain) <= MAX_ANNOTATION else b"",
    )


def parse_bundle(
    raw: bytes, predicate_type: str = SIGN_PREDICATE, check: Callable[[bytes], None] = json_limits.check
) -> Signature:
    """Parse a Sigstore bundle with a signature of an image, or a statement of `predicate_type`.

    `check` limits the values of the statement (gkm.api.json_limits).

    Raises:
        GKMError: METADATA_INVALID.
    """
    bundle = decode(raw, Bundle, "signature bundle")
    material = bundle.verification_material
    if not bundle.media_type.startswith(BUNDLE_PREFIX):
        return Signature(SignatureForm.BUNDLE, problem=f"it is a bundle of type {bundle.media_type[:80]!r}")
    if (material.public_key is UNSET) == (material.certificate is UNSET):
        return Signature(SignatureForm.BUNDLE, problem="it needs either a key or a certificate")
    envelope = bundle.dsse_envelope
    if envelope is UNSET or envelope.payload_type != IN_TOTO or len(envelope.signatures) != 1:
        return Signature(SignatureForm.BUNDLE, problem=_NO_STATEMENT)
    entries = material.tlog_entries
    if len(entries) > 1:
        return Signature(SignatureForm.BUNDLE, problem="it has more than one log entry")
    stamps = material.timestamp_verification_data or TimestampVerificationData()
    claims, problem = _claims(envelope.payload, predicate_type, check)
    if problem:
        return Signature(SignatureForm.BUNDLE, problem=problem)
    return Signature(
        SignatureForm.BUNDLE,
        pre_authentication_encoding(envelope.payload),
        envelope.signatures[0].sig,
        claims,
        envelope.payload,
        material.certificate.raw_bytes if material.certificate else b"",
        entries[0] if entries else None,
        msgspec.json.encode(bundle),
        stamps=tuple(stamp.signed_timestamp for stamp in stamps.rfc3161_timestamps),
    )


def parse_legacy_attestation(raw: bytes, annotations: dict[str, str], predicate_type: str) -> Signature:
    """Parse a legacy attestation: a DSSE envelope and the annotations of its layer.

    Raises:
        GKMError: METADATA_INVALID.
    """
    envelope = decode(raw, DSSEEnvelope, "signed statement")
    if envelope.payload_type != IN_TOTO or len(envelope.signatures) != 1:
        return Signature(SignatureForm.LEGACY, problem=_NO_STATEMENT)
    claims, problem = _claims(envelope.payload, predicate_type, json_limits.check_predicate)
    if problem:
        return Signature(SignatureForm.LEGACY, problem=problem)
    certificate, entry = _annotated(annotations)
    signed = pre_authentication_encoding(envelope.payload)
    signature = envelope.signatures[0].sig
    return Signature(SignatureForm.LEGACY, signed, signature, claims, envelope.payload, certificate, entry)


def _claims(payload: bytes, predicate_type: str, check: Callable[[bytes], None]) -> tuple[tuple[str, ...], str]:
    """Return the image digests that a statement names, and the reason why it is not of `predicate_type`."""
    statement = decode(payload, _Statement, "signed statement", check)
    types = (STATEMENT_TYPE,) if predicate_type == SIGN_PREDICATE else STATEMENT_TYPES
    if statement.type not in types or statement.predicate_type != predicate_type:
        # Attestations have the same shape and must not pass for a signature (compare cosign CVE-2022-36056).
        wanted = "an image signature" if predicate_type == SIGN_PREDICATE else f"{predicate_type!r}"
        return (), f"it states {statement.predicate_type[:80]!r}, not {wanted}"
    subjects = (subject.digest for subject in statement.subject)
    return tuple(f"sha256:{digest['sha256']}" for digest in subjects if "sha256" in digest), ""


def pre_authentication_encoding(payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature of an in-toto statement covers (DSSE 1.0, "PAE")."""
    return b"DSSEv1 %d %s %d %s" % (len(IN_TOTO), IN_TOTO.encode(), len(payload), payload)


def _annotated(annotations: dict[str, str]) -> tuple[bytes, LogEntry | None]:
    """Return the certificate (DER) and the log entry in the annotations of a layer, if any."""
    # A trusted root holds all authorities, so its signatures need no chain annotation, which the signer chose.
    pem = annotations.get(CERTIFICATE_ANNOTATION, "")
    entry = log_entries.from_annotation(annotations[ENTRY_ANNOTATION]) if ENTRY_ANNOTATION in annotations else None
    return _der(pem) if pem else b"", entry


def _der(pem: str) -> bytes:
    if len(pem) > MAX_ANNOTATION:
        raise GKMError(
            Reason.METADATA_INVALID, f"the certificate of the signature has more than {MAX_ANNOTATION} characters"
        )
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except MALFORMED as error:
        raise GKMError(Reason.METADATA_INVALID, "the certificate of the signature cannot be read") from error
    return certificate.public_bytes(serialization.Encoding.DER)
