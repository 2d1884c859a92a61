"""Sign an image in its registry, so that cosign 2, cosign 3 and GKM verify it.

GKM stores only signatures that its own verifier accepts. It stores blobs before the manifest that names them, and the
legacy form before the bundle. So an interrupted run leaves the image signed or not signed, and the user can repeat it.
A signer whose valid signature exists does not sign again.

Attach a signed statement to an image, such as its bill of materials, as `cosign attest` does.

It is a bundle beside the signatures; its predicate type keeps it apart from them. cosign 3 verifies it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import Manifest
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures import discovery
from gkm.images.signatures.attestations import MAX_ATTESTATION_BYTES, attestation, attestations
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import Signature, SignatureForm, parse_bundle, parse_legacy
from gkm.images.signing import forms, store
from gkm.images.signing.forms import ImageSigner, LegacyLayer

SIGN_SECONDS = 300.0
"""Total time for all requests to the registry."""
MAX_ROUNDS = 4
"""Attempts to write a tag. A concurrent writer can overwrite it, so `sign` reads the tag again after each write."""


@dataclass(frozen=True, slots=True)
class SignedImage:
    """A signed image: `stored` maps each form of the signature to its reference."""

    digest: str
    stored: dict[SignatureForm, str]

    @property
    def form(self) -> str:
        """Return the names of the forms, joined by `+`."""
        return "+".join(self.stored)


def sign(registry: Registry, ref: Reference, signer: ImageSigner) -> SignedImage:
    """Sign the image whose digest a reference names now.

    Registries have no compare-and-swap: if two signers write the same tag at the same moment, one can overwrite the
    signature of the other. Each signer reads the tag again after writing and adds a missing signature again, which
    leaves a gap of one request; a signer whose signature is lost signs again. `registry` must have no mirrors, because
    a mirror may return an old copy of the tag.

    Raises:
        GKMError: NOT_FOUND if the image does not exist, UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE;
            SIGNATURE_INVALID if verification would refuse the new signature; TOO_LARGE if the tag is full.
    """
    trust = TrustPolicy.from_policy(0, signer.policy)
    registry = registry.within(SIGN_SECONDS)
    subject = registry.manifest(ref)
    pinned = ref.pinned(subject.digest)
    legacy = _legacy(registry, pinned, signer, trust)
    bundle = _bundle(registry, pinned, signer, trust, subject)
    return SignedImage(subject.digest, {SignatureForm.LEGACY: legacy, SignatureForm.BUNDLE: bundle})


def _legacy(registry: Registry, ref: Reference, signer: ImageSigner, trust: TrustPolicy) -> str:
    """Add a layer to the tag unless it has a valid one of this signer; return the tag."""
    tag = discovery.legacy_tag(ref)
    layer: LegacyLayer | None = None
    for _ in range(MAX_ROUNDS):
        before = store.read_tag(registry, tag)
        existing = [_read(partial(discovery.legacy, registry, ref, each)) for each in before.layers]
        if any(each is not None and trust.evaluate(each, ref.target).ok for each in existing):
            return str(tag)
        if layer is None:
            layer = forms.legacy(ref, signer)
            _check(trust, parse_legacy(layer.payload, layer.annotations), ref)
        # Replace an invalid signature of the same key, for example one without a log entry.
        retained = [number for number, each in enumerate(existing) if each is None or not _by_same_key(signer, each)]
        store.write_tag(registry, tag, before, retained, layer)
    raise _overwritten(tag)


def _bundle(registry: Registry, ref: Reference, signer: ImageSigner, trust: TrustPolicy, subject: Manifest) -> str:
    """Attach a bundle unless the image has a valid one of this signer; return the referrer."""
    bundle: bytes | None = None
    for _ in range(MAX_ROUNDS):
        for each in discovery.signatures_first(registry.referrers(ref))[: discovery.MAX_SIGNATURES]:
            signature = _read(partial(discovery.bundle, registry, ref, each))
            if signature is not None and trust.evaluate(signature, ref.target).ok:
                return str(ref.pinned(each.digest))
        if bundle is None:
            bundle = forms.bundle(ref, signer)
            _check(trust, parse_bundle(bundle), ref)
        referrer, listed = store.attach(registry, ref, subject, bundle)
        if listed:
            return str(ref.pinned(referrer.digest))
        store.list_in_fallback_tag(registry, ref, referrer)
    raise _overwritten(ref)


def _read(read: Callable[[], Signature | None]) -> Signature | None:
    """Return a stored signature; None if it is unreadable or no signature."""
    try:
        return read()
    except GKMError as error:
        if discovery.is_transient(error):
            raise
        return None


def _by_same_key(signer: ImageSigner, signature: Signature) -> bool:
    return not signature.certificate and signer.key.public.verifies(signature.signature, signature.signed)


def _check(trust: TrustPolicy, signature: Signature, ref: Reference) -> None:
    finding = trust.evaluate(signature, ref.target)
    if not finding.ok:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"the {finding.form} signature of {ref} would not be accepted: {finding.reason}",
            "check that the trusted root is that of the services that took part; nothing was stored of it",
        )


def _overwritten(ref: Reference) -> GKMError:
    return GKMError(
        Reason.REGISTRY_UNAVAILABLE,
        f"the signature that was added to {ref} was overwritten {MAX_ROUNDS} times: others write at the same time",
        "sign again",
    )


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
    if listed or any(store.list_in_fallback_tag(registry, ref, referrer) for _ in range(MAX_ROUNDS)):
        return str(ref.pinned(referrer.digest))
    raise _overwritten(ref)
