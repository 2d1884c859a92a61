"""Signing an image in its registry, so that cosign 2, cosign 3 and we ourselves verify it.

Nothing is stored that our own verifier would refuse. Blobs come before the manifest that names them, and the legacy
form before the bundle: whoever is interrupted leaves an image that is signed, or not, and may begin again. Who has
signed already signs no second time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import Manifest
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures import discovery as found
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import Signature, SignatureForm, parse_bundle, parse_legacy
from gkm.images.signatures.trust_material import TrustMaterial
from gkm.images.signing import forms, store
from gkm.images.signing.forms import ImageSigner, LegacyLayer

SIGN_SECONDS = 300.0
"""How long the registry may take altogether: for what is there, and for storing."""
MAX_ROUNDS = 4
"""How often a tag is looked at: after writing it must hold what was added, or somebody else wrote too."""


@dataclass(frozen=True, slots=True)
class SignedImage:
    """An image that is signed: `stored` says in which forms, and under which reference each can be found."""

    digest: str
    stored: dict[SignatureForm, str]

    @property
    def form(self) -> str:
        """Return the forms as one word."""
        return "+".join(self.stored)


def sign(registry: Registry, ref: Reference, signer: ImageSigner) -> SignedImage:
    """Sign an image: the digest that a reference names now.

    Registries have no compare-and-swap: of two who sign the same image at the same moment, one may overwrite what the
    other has added to a tag. Each looks again after writing and repairs what it sees missing, which leaves a gap of
    one request; whoever finds his signature gone signs again. The registry's mirrors must not be configured, or the
    look may be at an old copy.

    Raises:
        GKMError: NOT_FOUND for an image that is not there, UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE;
            SIGNATURE_INVALID when what was made would not be accepted; TOO_LARGE when there is no room for another.
    """
    trust = TrustPolicy.from_policy(0, signer.policy, TrustMaterial())
    registry = registry.within(SIGN_SECONDS)
    subject = registry.manifest(ref)
    pinned = ref.pinned(subject.digest)
    legacy = _legacy(registry, pinned, signer, trust)
    bundle = _bundle(registry, pinned, signer, trust, subject)
    return SignedImage(subject.digest, {SignatureForm.LEGACY: legacy, SignatureForm.BUNDLE: bundle})


def _legacy(registry: Registry, ref: Reference, signer: ImageSigner, trust: TrustPolicy) -> str:
    """Add a layer to the tag, unless a good one of this signer is there; return the tag."""
    tag = found.legacy_tag(ref)
    layer: LegacyLayer | None = None
    for _ in range(MAX_ROUNDS):
        before = store.read_tag(registry, tag)
        there = [_read(partial(found.legacy, registry, ref, each)) for each in before.layers]
        if any(each is not None and trust.evaluate(each, ref.target).ok for each in there):
            return str(tag)
        if layer is None:
            layer = forms.legacy(ref, signer)
            _check(trust, parse_legacy(layer.payload, layer.annotations), ref)
        # One of the same key that does not count (without its log entry) makes room for the one that does.
        retained = [number for number, each in enumerate(there) if each is None or not _by_same_key(signer, each)]
        store.write_tag(registry, tag, before, retained, layer)
    raise _overwritten(tag)


def _bundle(registry: Registry, ref: Reference, signer: ImageSigner, trust: TrustPolicy, subject: Manifest) -> str:
    """Attach a bundle, unless a good one of this signer is there; return the referrer."""
    bundle: bytes | None = None
    for _ in range(MAX_ROUNDS):
        for each in found.signatures_first(registry.referrers(ref))[: found.MAX_SIGNATURES]:
            signature = _read(partial(found.bundle, registry, ref, each))
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
    """Return a signature that is there, None for what is none, or none that can be read."""
    try:
        return read()
    except GKMError as error:
        if found.is_transient(error):
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
        f"what was added to {ref} was not there afterwards, {MAX_ROUNDS} times: others write at the same time",
        "sign again",
    )
