"""Sign an image in its registry, so that cosign 2, cosign 3 and GKM verify it.

GKM stores only signatures that its own verifier accepts. It stores blobs before the manifest that names them, and the
legacy form before the bundle. So an interrupted run leaves the image signed or not signed, and the user can repeat it.
A signer whose valid signature exists does not sign again. Each form is stored by itself: where a registry makes tags
immutable, the second signer of an image cannot change the legacy tag, and its bundle is a referrer.

A signed statement about an image, such as its bill of materials, is attached as `cosign attest` does. It is a bundle
beside the signatures; its predicate type keeps it apart from them. cosign 3 verifies it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.image_store import ImageStore
from gkm.images.manifest import Manifest
from gkm.images.reference import Reference
from gkm.images.signatures import discovery
from gkm.images.signatures.attestations import MAX_ATTESTATION_BYTES, attestation, attestations
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import Signature, SignatureForm, parse_bundle, parse_legacy
from gkm.images.signing import forms, store
from gkm.images.signing.forms import ImageSigner, LegacyLayer
from gkm.images.signing.store import TagUnusable

SIGN_SECONDS = 300.0
"""Seconds for all requests to the registry."""


@dataclass(frozen=True, slots=True)
class SignedImage:
    """A signed image: `stored` maps forms of the signature to their references, `missing` others to their obstacles.

    `added` are the stored forms that this signer had not stored before.
    """

    digest: str
    stored: dict[SignatureForm, str]
    missing: dict[SignatureForm, TagUnusable] = field(default_factory=dict)
    added: set[SignatureForm] = field(default_factory=set)

    @property
    def form(self) -> str:
        """Return the forms that are stored, joined by `+`."""
        return "+".join(self.stored)


def sign(registry: ImageStore, ref: Reference, signer: ImageSigner, repository: str = "") -> SignedImage:
    """Sign the image whose digest a reference names now; store the signature in `repository`, "" for the image's own.

    Registries have no compare-and-swap: if two signers write the same tag at the same moment, one can overwrite the
    signature of the other. Each signer reads the tag again after writing and adds a missing signature again, which
    leaves a gap of one request; a signer whose signature is lost signs again. `registry` must have no mirrors, because
    a mirror may return an old copy of the tag.

    Raises:
        GKMError: NOT_FOUND if the image does not exist, UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE;
            SIGNATURE_INVALID if verification would refuse the new signature; as store.TagUnusable if no form is stored.
    """
    trust = TrustPolicy.from_policy(0, signer.policy)
    registry = registry.within(SIGN_SECONDS)
    subject = registry.manifest(ref)
    pinned = ref.pinned(subject.digest)
    place = pinned.in_repository(repository)
    signed = SignedImage(subject.digest, {})
    for form, store_form in (
        (SignatureForm.LEGACY, partial(_legacy, registry, pinned, place, signer, trust)),
        (SignatureForm.BUNDLE, partial(_bundle, registry, place, signer, trust, subject)),
    ):
        try:
            signed.stored[form], is_new = store_form()
            signed.added.update([form] if is_new else [])
        except TagUnusable as error:
            signed.missing[form] = error
    if not signed.stored:
        raise next(iter(signed.missing.values()))
    return signed


def _legacy(
    registry: ImageStore, ref: Reference, place: Reference, signer: ImageSigner, trust: TrustPolicy
) -> tuple[str, bool]:
    """Add a layer to the tag at `place` unless this signer has a valid one there; return the tag, and if it is new."""
    tag = place.tag_of_digest(".sig")
    layer: LegacyLayer | None = None
    for _ in range(store.MAX_ROUNDS):
        before = store.read_tag(registry, tag)
        existing = [_read(partial(discovery.legacy, registry, place, each)) for each in before.layers]
        if any(each is not None and trust.evaluate(each, ref.target).ok for each in existing):
            return str(tag), layer is not None
        if layer is None:
            layer = forms.legacy(ref, signer)
            _check(trust, parse_legacy(layer.payload, layer.annotations), ref)
        # Replace an invalid signature of the same key, for example one without a log entry.
        retained = [number for number, each in enumerate(existing) if each is None or not _by_same_key(signer, each)]
        store.write_tag(registry, tag, before, retained, layer)
    raise store.overwritten(tag)


def _bundle(
    registry: ImageStore, ref: Reference, signer: ImageSigner, trust: TrustPolicy, subject: Manifest
) -> tuple[str, bool]:
    """Attach a bundle unless the image has this signer's valid bundle; return the referrer, and if it is new."""
    for each in discovery.signatures_first(registry.referrers(ref))[: discovery.MAX_SIGNATURES]:
        signature = _read(partial(discovery.bundle, registry, ref, each))
        if signature is not None and trust.evaluate(signature, ref.target).ok:
            return str(ref.pinned(each.digest)), False
    bundle = forms.bundle(ref, signer)
    _check(trust, parse_bundle(bundle), ref)
    return str(store.attach(registry, ref, subject, bundle)), True


def _read(read: Callable[[], Signature | None]) -> Signature | None:
    """Return a stored signature; None if it is unreadable or no signature."""
    try:
        return read()
    except GKMError as error:
        if error.inconclusive:
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
            "check that the trusted root belongs to the services that took part; the signature was not stored",
        )


def attest(
    registry: ImageStore,
    ref: Reference,
    predicate_type: str,
    predicate: Mapping[str, Any],
    signer: ImageSigner,
    *,
    suffices: Callable[[bytes], bool] = lambda _payload: False,
    repository: str = "",
) -> str:
    """Sign a statement about a pinned image and store it; return its reference. The same one is stored only once.

    `repository` is where the signatures are, "" for the image's own.

    `suffices`: whether another statement of this signer, by its payload, makes a new one unnecessary.

    Raises:
        GKMError: as gkm.images.signing.sign.sign; TOO_LARGE beyond MAX_ATTESTATION_BYTES.
    """
    registry = registry.within(SIGN_SECONDS)
    trust = TrustPolicy.from_policy(0, signer.policy)
    payload = forms.statement(ref, predicate_type, predicate)
    place = ref.in_repository(repository)
    for found in attestations(registry, place, predicate_type):
        signature = attestation(registry, place, found, predicate_type)
        if signature is None or signature.payload is None or not trust.evaluate(signature, ref.target).ok:
            continue
        if signature.payload == payload or suffices(signature.payload):
            return str(place.pinned(found.digest))
    subject = registry.manifest(ref)
    bundle = forms.attestation(payload, signer)
    if len(bundle) > MAX_ATTESTATION_BYTES:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the signed statement about {ref} has {len(bundle)} bytes, at most {MAX_ATTESTATION_BYTES} are read",
        )
    return str(store.attach(registry, place, subject, bundle, predicate_type))
