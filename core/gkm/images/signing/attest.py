"""Attach a signed statement to an image, such as its bill of materials, as `cosign attest` does.

It is a bundle beside the signatures; its predicate type keeps it apart from them. cosign 3 verifies it.
"""

from collections.abc import Mapping
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.discovery import is_transient
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import parse_bundle
from gkm.images.signing import forms, store
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import SIGN_SECONDS

MAX_ATTESTATIONS = 64
MAX_ATTESTATION_BYTES = 16 << 20
"""Size of a signed statement: a list of a captured cache's files has up to 10 MiB, then base64. cosign reads 128 MiB.
"""


def attest(
    registry: Registry, ref: Reference, predicate_type: str, predicate: Mapping[str, Any], signer: ImageSigner
) -> str:
    """Sign a statement about a pinned image and store it; return its reference. The same one is stored only once.

    Raises:
        GKMError: as gkm.images.signing.sign.sign; TOO_LARGE beyond MAX_ATTESTATION_BYTES.
    """
    registry = registry.within(SIGN_SECONDS)
    trust = TrustPolicy.from_policy(0, signer.policy)
    payload = forms.statement(ref, predicate_type, predicate)
    for found in attestations(registry, ref, predicate_type):
        if _verified(registry, ref, found, predicate_type, trust) == payload:
            return str(ref.pinned(found.digest))
    subject = registry.manifest(ref)
    bundle = forms.attestation(payload, signer)
    if len(bundle) > MAX_ATTESTATION_BYTES:
        raise GKMError(Reason.TOO_LARGE, f"the statement about {ref} has {len(bundle)} bytes, signed")
    referrer, listed = store.attach(registry, ref, subject, bundle, predicate_type)
    if not listed:
        store.list_in_fallback_tag(registry, ref, referrer)
    return str(ref.pinned(referrer.digest))


def attestations(registry: Registry, ref: Reference, predicate_type: str) -> list[Descriptor]:
    """Return the attestations of this type that an image has, by what their descriptors state; raises GKMError."""
    found = [each for each in registry.referrers(ref) if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    return found[:MAX_ATTESTATIONS]


def _verified(registry: Registry, ref: Reference, found: Descriptor, predicate_type: str, trust: TrustPolicy) -> bytes:
    """Return the statement of an attestation with a signature that `trust` accepts; b"" if it is no such."""
    try:
        layers = registry.manifest(ref.pinned(found.digest)).image().layers
        if not layers:
            return b""
        signature = parse_bundle(registry.small_blob(ref, layers[0], MAX_ATTESTATION_BYTES), predicate_type)
    except GKMError as error:
        if is_transient(error):
            raise
        return b""
    return (trust.evaluate(signature, ref.target).ok and signature.payload) or b""
