"""Cosign signatures by key made in Python: right ones that real cosign accepts, and ones that are wrong in one way.

Two forms: the legacy tag sha256-<hex>.sig with a simplesigning payload, which can be a referrer too, and a bundle v0.3
as a referrer. Those with a
log entry or without a key are made in `sigstore_keyless`.
"""

import base64
import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.cluster.certificates import public_pem
from support.registry.faults import flipped
from support.registry.push import OCI_CONFIG, Target
from support.registry.store import OCI_EMPTY, OCI_MANIFEST

SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO = "application/vnd.in-toto+json"
PREDICATE = "https://sigstore.dev/cosign/sign/v1"
OTHER_DIGEST = "sha256:" + hashlib.sha256(b"another image").hexdigest()


class Flaw(enum.Enum):
    """The one thing that is wrong with a signature."""

    NONE = enum.auto()
    WRONG_KEY = enum.auto()
    """Signed by another key (the bundle's hint names the expected one)."""
    FLIPPED_PAYLOAD = enum.auto()
    """One bit of the signed bytes changed after signing."""
    FLIPPED_SIGNATURE = enum.auto()
    OTHER_SUBJECT = enum.auto()
    """A valid signature of another image's digest, put where this image's is looked for."""
    OTHER_TYPE = enum.auto()
    """A valid signature by the right key of something that is no cosign image signature."""
    MISSING = enum.auto()
    """The place is there, the signature is not: no annotation, no signature in the envelope."""


@dataclass(frozen=True)
class SigningKey:
    """An ECDSA P-256 key, as `cosign generate-key-pair` makes them."""

    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def public_pem(self) -> bytes:
        return public_pem(self.private.public_key())

    @property
    def hint(self) -> str:
        """base64(sha256(SubjectPublicKeyInfo DER)), as cosign writes it."""
        der = self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(hashlib.sha256(der).digest()).decode()

    def sign(self, data: bytes) -> bytes:
        """Return the DER signature over SHA-256 of `data`."""
        return self.private.sign(data, ec.ECDSA(hashes.SHA256()))


def sign_legacy(target: Target, digest: str, key: SigningKey, flaw: Flaw = Flaw.NONE) -> str:
    """Push a signature of `digest` in the tag sha256-<hex>.sig; return the digest of the signature's manifest."""
    payload = payload_of(target, digest, flaw)
    signature = _signature(payload, key, flaw)
    if flaw is Flaw.FLIPPED_PAYLOAD:
        payload = flipped(payload)
    annotations = {} if flaw is Flaw.MISSING else {SIGNATURE_ANNOTATION: base64.b64encode(signature).decode()}
    return push_legacy(target, digest, payload, annotations)


def attach_legacy(target: Target, digest: str, key: SigningKey, flaw: Flaw = Flaw.NONE, *, more: int = 0) -> str:
    """Attach a legacy signature as a referrer, as cosign's oci-1-1 mode does, before `more` of strangers."""
    sign_legacy(target, digest, key, flaw)
    tag = digest.replace(":", "-") + ".sig"
    signed = json.loads(target.get(f"manifests/{tag}")[1])
    target.request("DELETE", f"/v2/{target.repository}/manifests/{tag}")
    signature = {SIGNATURE_ANNOTATION: base64.b64encode(SigningKey().sign(b"")).decode()}
    signed["layers"] += [{**signed["layers"][0], "annotations": signature}] * more
    kind = "application/vnd.dev.cosign.artifact.sig.v1+json"
    image = target.get(f"manifests/{digest}")[1]
    subject = {"mediaType": json.loads(image).get("mediaType", OCI_MANIFEST), "digest": digest, "size": len(image)}
    signed |= {"config": {**signed["config"], "mediaType": kind}, "artifactType": kind, "subject": subject}
    return str(target.manifest(signed)["digest"])


def payload_of(target: Target, digest: str, flaw: Flaw = Flaw.NONE) -> bytes:
    """Return the simplesigning payload about `digest`."""
    signed = OTHER_DIGEST if flaw is Flaw.OTHER_SUBJECT else digest
    kind = "another type" if flaw is Flaw.OTHER_TYPE else "cosign container image signature"
    identity = {"docker-reference": str(target)}
    critical = {"identity": identity, "image": {"docker-manifest-digest": signed}, "type": kind}
    return json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()


def push_legacy(target: Target, digest: str, payload: bytes, annotations: Mapping[str, str]) -> str:
    """Put a payload and its annotations into the tag sha256-<hex>.sig; return the digest of the manifest."""
    layer = {**target.blob(payload, SIMPLE_SIGNING), "annotations": dict(annotations)}
    config = {"architecture": "", "os": "", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}, "config": {}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": target.blob(json.dumps(config).encode(), OCI_CONFIG),
        "layers": [layer],
    }
    return str(target.manifest(manifest, digest.replace(":", "-") + ".sig")["digest"])


def sign_bundle(target: Target, digest: str, key: SigningKey, flaw: Flaw = Flaw.NONE) -> str:
    """Push a bundle v0.3 as a referrer of `digest` (or into its fallback tag); return the referrer's digest."""
    return push_bundle(target, digest, bundle_of(digest, key, flaw))


def push_bundle(target: Target, digest: str, bundle: Mapping[str, Any]) -> str:
    """Attach a bundle to `digest` as a referrer (or in its fallback tag); return the referrer's digest."""
    status, image = target.get(f"manifests/{digest}")
    if status != 200:
        raise ValueError(f"{target} does not hold {digest} ({status}): a referrer must name its size")
    parsed: dict[str, Any] = json.loads(image)
    media_type = parsed.get("mediaType", OCI_MANIFEST)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": BUNDLE,
        "config": target.blob(b"{}", OCI_EMPTY),
        "layers": [target.blob(json.dumps(bundle).encode(), BUNDLE)],
        "annotations": {
            "dev.sigstore.bundle.content": "dsse-envelope",
            "dev.sigstore.bundle.predicateType": PREDICATE,
        },
        "subject": {"mediaType": media_type, "size": len(image), "digest": digest},
    }
    return str(target.manifest(manifest)["digest"])


def bundle_of(digest: str, key: SigningKey, flaw: Flaw = Flaw.NONE) -> Mapping[str, Any]:
    """Return the bundle v0.3 that signs `digest`, as an object."""
    payload = statement_of(digest, flaw)
    signature = _signature(pae(IN_TOTO, payload), key, flaw)
    if flaw is Flaw.FLIPPED_PAYLOAD:
        payload = flipped(payload)
    signatures = [] if flaw is Flaw.MISSING else [{"sig": base64.b64encode(signature).decode()}]
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": IN_TOTO,
        "signatures": signatures,
    }
    material = {"publicKey": {"hint": key.hint}}
    return {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}


def statement_of(digest: str, flaw: Flaw = Flaw.NONE) -> bytes:
    """Return the in-toto statement about `digest`."""
    signed = OTHER_DIGEST if flaw is Flaw.OTHER_SUBJECT else digest
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": signed.removeprefix("sha256:")}, "annotations": {}}],
        "predicateType": "https://example.test/another" if flaw is Flaw.OTHER_TYPE else PREDICATE,
        "predicate": {},
    }
    return json.dumps(statement).encode()


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _signature(data: bytes, key: SigningKey, flaw: Flaw) -> bytes:
    signer = SigningKey() if flaw is Flaw.WRONG_KEY else key
    signature = signer.sign(data)
    return flipped(signature) if flaw is Flaw.FLIPPED_SIGNATURE else signature
