"""Attach a signed statement to an image, such as its bill of materials, as `cosign attest` does.

It is a bundle beside the signatures; its predicate type keeps it apart from them. cosign 3 verifies it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.attestations import MAX_ATTESTATION_BYTES, attestation, attestations
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signing import forms, store
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import SIGN_SECONDS


def attest(
    registry: Registry,
    ref: Reference,
    predicate_type: str,
    predicate: Mapping[str, Any],
    signer: ImageSigner,
    *,
    suffices: Callable[[bytes], bool] = lambda _payload: False,
) -> str:
    """Sign a statement about a pinned image and store it; return its reference. The same one is stored only once.

    `suffices`: whether another statement of this signer, by its payload, makes a new one unnecessary.

    Raises:
        GKMError: as gkm.images.signing.sign.sign; TOO_LARGE beyond MAX_ATTESTATION_BYTES.
    """
    registry = registry.within(SIGN_SECONDS)
    trust = TrustPolicy.from_policy(0, signer.policy)
    payload = forms.statement(ref, predicate_type, predicate)
    for found in attestations(registry, ref, predicate_type):
        signature = attestation(registry, ref, found, predicate_type)
        if signature is None or signature.payload is None or not trust.evaluate(signature, ref.target).ok:
            continue
        if signature.payload == payload or suffices(signature.payload):
            return str(ref.pinned(found.digest))
    subject = registry.manifest(ref)
    bundle = forms.attestation(payload, signer)
    if len(bundle) > MAX_ATTESTATION_BYTES:
        raise GKMError(Reason.TOO_LARGE, f"the statement about {ref} has {len(bundle)} bytes, signed")
    referrer, listed = store.attach(registry, ref, subject, bundle, predicate_type)
    if not listed:
        store.list_in_fallback_tag(registry, ref, referrer)
    return str(ref.pinned(referrer.digest))
