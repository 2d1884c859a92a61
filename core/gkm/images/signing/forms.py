"""The two forms of a new signature, as bytes. Pure, except for requests to the transparency log.

cosign 2 reads only the legacy form. cosign 3 reads bundles, and the legacy form only if the image has no bundle at all:
beside the bundle of another signer it would ignore a legacy signature. So GKM signs an image in both forms.
Source: cosign's specs/SIGNATURE_SPEC.md and specs/BUNDLE_SPEC.md; sigstore/protobuf-specs, sigstore_bundle.proto.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from msgspec import UNSET

from gkm.api.policies import Policy
from gkm.images.reference import Reference
from gkm.images.signatures import bundles, log_entries, signature_formats
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.signature_formats import IN_TOTO
from gkm.images.signing.keys import PrivateKey


@dataclass(frozen=True, slots=True)
class ImageSigner:
    """A signer of images: a key, or the holder of `certificates` (DER: the signer's, then its authorities').

    Exactly the signatures of this signer satisfy `policy`; it identifies the signer's earlier signatures.
    """

    key: PrivateKey
    policy: Policy
    certificates: tuple[bytes, ...] = ()
    log: Rekor | None = None

    @classmethod
    def by_key(cls, key: PrivateKey, log: Rekor | None = None, trusted_root: str = "") -> "ImageSigner":
        """Return a signer by key; `trusted_root` is the path of the trusted root that contains `log`."""
        pem = key.public.pem.decode()
        policy = Policy([pem], tlog="required" if log else "ignored", trusted_root=trusted_root if log else "")
        return cls(key, policy, log=log)

    @property
    def verifier(self) -> bytes:
        """Return the signer's certificate, else its public key, as PEM."""
        return _pem(self.certificates[0]) if self.certificates else self.key.public.pem


@dataclass(frozen=True, slots=True)
class LegacyLayer:
    """A layer of the tag `sha256-<hex>.sig`: a legacy signature of an image."""

    payload: bytes
    annotations: dict[str, str]


def legacy(ref: Reference, signer: ImageSigner) -> LegacyLayer:
    """Return a legacy signature of an image; raises the errors of the log."""
    payload = msgspec.json.encode(
        {
            "critical": {
                "identity": {"docker-reference": ref.identity},
                "image": {"docker-manifest-digest": ref.target},
                "type": signature_formats.SIMPLE_SIGNING_TYPE,
            },
            "optional": None,
        }
    )
    signature = signer.key.sign(payload)
    annotations = {signature_formats.SIGNATURE_ANNOTATION: base64.b64encode(signature).decode()}
    if signer.certificates:
        annotations[signature_formats.CERTIFICATE_ANNOTATION] = signer.verifier.decode()
        annotations[signature_formats.CHAIN_ANNOTATION] = b"".join(map(_pem, signer.certificates[1:])).decode()
    if signer.log:
        entry = signer.log.add_hashedrekord(payload, signature, signer.verifier)
        annotations[signature_formats.ENTRY_ANNOTATION] = log_entries.annotation(entry)
    return LegacyLayer(payload, annotations)


def bundle(ref: Reference, signer: ImageSigner) -> bytes:
    """Return a signature of an image as a bundle v0.3; raises the errors of the log."""
    return attestation(statement(ref, signature_formats.SIGN_PREDICATE, {}), signer)


def statement(ref: Reference, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Return an unsigned in-toto statement about an image."""
    return msgspec.json.encode(
        {
            "_type": signature_formats.STATEMENT_TYPE,
            "subject": [{"digest": {"sha256": ref.target.removeprefix("sha256:")}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def attestation(payload: bytes, signer: ImageSigner) -> bytes:
    """Return a signed statement as a bundle v0.3; raises the errors of the log."""
    signature = signer.key.sign(signature_formats.pre_authentication_encoding(payload))
    envelope = bundles.DSSEEnvelope(payload, IN_TOTO, [bundles.EnvelopeSignature(signature)])
    log, certificates = signer.log, signer.certificates
    material = bundles.VerificationMaterial(
        public_key=UNSET if certificates else bundles.PublicKeyIdentifier(signer.key.public.key_id),
        certificate=bundles.RawBytes(certificates[0]) if certificates else UNSET,
        tlog_entries=[log.add_dsse(msgspec.json.encode(envelope), signer.verifier)] if log else [],
    )
    return msgspec.json.encode(bundles.Bundle(bundles.BUNDLE_PREFIX, material, envelope))


def _pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
