"""Attestations made in Python, in the two forms that cosign stores: right ones, and ones that are wrong in one way."""

import base64
import json
from typing import Any

from support.registry.push import OCI_CONFIG, Target
from support.registry.store import OCI_EMPTY, OCI_MANIFEST
from support.sigstore.key_signatures import BUNDLE, IN_TOTO, SIGNATURE_ANNOTATION, SigningKey, pae

PROVENANCE = "https://slsa.dev/provenance/v1"
DSSE = "application/vnd.dsse.envelope.v1+json"


def statement(digest: str, predicate: object, kind: str = PROVENANCE, version: str = "v1") -> bytes:
    """Return an in-toto statement; a predicate of bytes is JSON already."""
    raw = predicate if isinstance(predicate, bytes) else json.dumps(predicate).encode()
    subject = json.dumps([{"name": "x", "digest": {"sha256": digest.removeprefix("sha256:")}}]).encode()
    head = json.dumps({"_type": f"https://in-toto.io/Statement/{version}", "predicateType": kind}).encode()[:-1]
    return head + b', "subject": ' + subject + b', "predicate": ' + raw + b"}"


def envelope(payload: bytes, key: SigningKey) -> dict[str, Any]:
    """Return a DSSE envelope around a payload, signed."""
    signature = base64.b64encode(key.sign(pae(IN_TOTO, payload))).decode()
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": IN_TOTO,
        "signatures": [{"sig": signature, "keyid": ""}],
    }


def attach(target: Target, digest: str, payload: bytes, key: SigningKey, *, stated: str = PROVENANCE) -> None:
    """Attach a signed statement as a bundle; `stated` is the type in the annotation of the referrer, "" for none."""
    bundle = {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": key.hint}},
        "dsseEnvelope": envelope(payload, key),
    }
    _, image = target.get(f"manifests/{digest}")
    target.manifest(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": BUNDLE,
            "config": target.blob(b"{}", OCI_EMPTY),
            "layers": [target.blob(json.dumps(bundle).encode(), BUNDLE)],
            "annotations": {"dev.sigstore.bundle.predicateType": stated} if stated else {},
            "subject": {"mediaType": OCI_MANIFEST, "size": len(image), "digest": digest},
        }
    )


def attach_legacy(target: Target, digest: str, payloads: list[bytes], key: SigningKey, *, stated: str = "") -> None:
    """Put signed statements into the tag sha256-<hex>.att."""
    layers = [
        {
            **target.blob(json.dumps(envelope(payload, key)).encode(), DSSE),
            "annotations": {SIGNATURE_ANNOTATION: "", "predicateType": stated or json.loads(payload)["predicateType"]},
        }
        for payload in payloads
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": target.blob(b"{}", OCI_CONFIG),
        "layers": layers,
    }
    target.manifest(manifest, digest.replace(":", "-") + ".att")
