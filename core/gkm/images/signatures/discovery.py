"""Find the signatures of an image in its registry; `evaluation` decides whether a signature is valid."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeVar

from gkm.api.errors import GKMError, Reason
from gkm.images.image_store import ImageSource, find
from gkm.images.manifest import OCI_EMPTY, PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.signatures.bundles import BUNDLE_PREFIX
from gkm.images.signatures.signature_formats import (
    SIGN_PREDICATE,
    SIMPLE_SIGNING,
    Signature,
    SignatureForm,
    parse_bundle,
    parse_legacy,
)

MAX_SIGNATURES = 64
"""Limit of signatures that are read from referrers, and from the legacy tag; a finding reports that there are more."""
MAX_PAYLOAD_BYTES = 256 << 10
MAX_MANIFEST_BYTES = 1 << 20
"""Limit of bytes of a manifest with signatures. 64 legacy signatures with certificates and log entries have 640 KiB."""
MAX_HELD_BYTES = 4 << 20
"""Limit of memory in bytes for all signatures of an image; 128 real signatures need less than half."""
_TYPES_BY_PROBABILITY = {OCI_EMPTY: 2, "application/vnd.dev.cosign.artifact.sig.v1+json": 3}
"""The second is for `cosign sign --registry-referrers-mode=oci-1-1`, whose many layers must not hide a bundle."""
T = TypeVar("T")


@dataclass(slots=True)
class DiscoveredSignatures:
    """The signatures of an image, bundles first; a malformed signature is an entry with `problem` set.

    `read_error` is the transient error that prevented a complete search; then the image may have more signatures.
    """

    signatures: list[Signature] = field(default_factory=list)
    read_error: GKMError | None = None
    held_bytes: int = 0

    def try_read(self, form: SignatureForm, read: Callable[[], T]) -> T | None:
        """Return the result of `read`; after an error, record it and return None, so that the search continues."""
        try:
            return read()
        except GKMError as error:
            if error.inconclusive:
                self.read_error = self.read_error or error
            else:
                self.signatures.append(Signature(form, problem=error.message))
            return None

    def add(self, form: SignatureForm, read: Callable[[], Signature | None]) -> None:
        """Add the signature that `read` returns, if any; handle errors as `try_read` does."""
        if signature := self.try_read(form, read):
            held = self.held_bytes + _size(signature)
            if held > MAX_HELD_BYTES:
                signature = Signature(form, problem=f"it and those before it have more than {MAX_HELD_BYTES} bytes")
            else:
                self.held_bytes = held
            self.signatures.append(signature)


def find_signatures(registry: ImageSource, ref: Reference) -> DiscoveredSignatures:
    """Return the signatures of a pinned image, at most MAX_SIGNATURES from referrers and as many from the legacy tag.

    An error with one form does not hide the other form: a good signature counts even if the search is incomplete.

    Raises:
        GKMError: NOT_ALLOWED if the configuration does not allow the registry.
    """
    registry.check_allowed(ref)
    found = DiscoveredSignatures()
    referrers = signatures_first(found.try_read(SignatureForm.BUNDLE, partial(registry.referrers, ref)) or [])
    attached = _attached(registry, ref, referrers[:MAX_SIGNATURES], found)
    for layer in islice(attached, MAX_SIGNATURES):
        found.add(*_reading(registry, ref, layer))
    if len(referrers) > MAX_SIGNATURES or next(attached, None) is not None:
        # A client with push access can attach thousands. Verification then fails unless a good one is among the first.
        what = f"{len(referrers)} artifacts" if len(referrers) > MAX_SIGNATURES else "more signatures"
        problem = f"{what} are attached to the image, only the first {MAX_SIGNATURES} were read"
        found.signatures.append(Signature(SignatureForm.BUNDLE, problem=problem))
    layers = found.try_read(SignatureForm.LEGACY, partial(layers_in_tag, registry, ref.tag_of_digest(".sig"))) or []
    for layer in layers[:MAX_SIGNATURES]:
        found.add(SignatureForm.LEGACY, partial(legacy, registry, ref, layer))
    return found


def _attached(
    registry: ImageSource, ref: Reference, referrers: Iterable[Descriptor], found: DiscoveredSignatures
) -> Iterator[Descriptor]:
    """Yield the layers with signatures in the referrers; `found` has those that cannot be read."""
    for each in referrers:
        yield from found.try_read(SignatureForm.BUNDLE, partial(signature_layers, registry, ref, each)) or []


def _reading(
    registry: ImageSource, ref: Reference, layer: Descriptor
) -> tuple[SignatureForm, Callable[[], Signature | None]]:
    """Return the form of the signature in a layer, and the function that reads it."""
    if layer.media_type == SIMPLE_SIGNING:
        return SignatureForm.LEGACY, partial(legacy, registry, ref, layer)
    return SignatureForm.BUNDLE, partial(_bundle_in, registry, ref, layer)


def signatures_first(referrers: Iterable[Descriptor]) -> list[Descriptor]:
    """Return the referrers of an image, the most probable signatures first.

    So the attestations and other artifacts that a build attaches by the dozen do not hide a signature. Artifacts that
    declare a false type can hide it, but a client with push access can also overwrite the whole list if the registry
    has no referrers API.
    """
    return sorted(referrers, key=_improbability)


def _improbability(referrer: Descriptor) -> int:
    stated = referrer.annotations.get(PREDICATE_ANNOTATION, "")
    if stated and stated != SIGN_PREDICATE:
        return 4
    if referrer.artifact_type.startswith(BUNDLE_PREFIX):
        return 1 - (stated == SIGN_PREDICATE)
    # In the fallback index that cosign 3.1 writes, a bundle has the artifact type "empty".
    return _TYPES_BY_PROBABILITY.get(referrer.artifact_type, 4)


def bundle(registry: ImageSource, ref: Reference, descriptor: Descriptor) -> Signature | None:
    """Return the bundle in a referrer; None if the referrer is another artifact.

    Raises:
        GKMError: the referrer cannot be read, or is attached to another image.
    """
    layers = signature_layers(registry, ref, descriptor)
    if not layers or layers[0].media_type == SIMPLE_SIGNING:
        return None
    return _bundle_in(registry, ref, layers[0])


def signature_layers(registry: ImageSource, ref: Reference, descriptor: Descriptor) -> list[Descriptor]:
    """Return the layers with signatures in a referrer: a bundle, or legacy signatures; empty for another artifact.

    cosign attaches legacy signatures instead of writing their tag with `--registry-referrers-mode=oci-1-1`.

    Raises:
        GKMError: the referrer cannot be read; METADATA_INVALID if it is attached to another image.
    """
    # Do not trust or filter by the descriptor's artifactType: cosign 3.1's fallback index has
    # "application/vnd.oci.empty.v1+json" there. The manifest has the right type.
    manifest = registry.manifest(ref.pinned(descriptor.digest), MAX_MANIFEST_BYTES)
    if manifest.is_index:
        return []
    image = manifest.image()
    bundles = [layer for layer in image.layers if layer.media_type.startswith(BUNDLE_PREFIX)]
    layers = bundles[:1] or [layer for layer in image.layers if layer.media_type == SIMPLE_SIGNING]
    if layers and (image.subject is None or image.subject.digest != ref.digest):
        raise GKMError(Reason.METADATA_INVALID, "the signature is attached to another image")
    return layers


def _bundle_in(registry: ImageSource, ref: Reference, layer: Descriptor) -> Signature:
    return parse_bundle(registry.small_blob(ref, layer, MAX_PAYLOAD_BYTES))


def legacy(registry: ImageSource, ref: Reference, layer: Descriptor) -> Signature | None:
    """Return the legacy signature in a layer; None if the layer has another media type.

    Raises:
        GKMError: the layer cannot be read.
    """
    if layer.media_type != SIMPLE_SIGNING:
        return None
    return parse_legacy(registry.small_blob(ref, layer, MAX_PAYLOAD_BYTES), layer.annotations)


def layers_in_tag(registry: ImageSource, tag: Reference) -> list[Descriptor]:
    """Return the layers of a tag of cosign beside an image; an empty list without such a tag; raises GKMError."""
    manifest = find(registry, tag, MAX_MANIFEST_BYTES)
    return manifest.image().layers if manifest else []


def _size(signature: Signature) -> int:
    """Return the number of bytes in a signature."""
    parts = [signature.signed, signature.signature, signature.payload or b"", signature.certificate, signature.bundle]
    texts = list(signature.claims)
    if entry := signature.entry:
        parts += [entry.log_id.key_id, entry.canonicalized_body, entry.promise]
        parts += entry.inclusion_proof.hashes if entry.inclusion_proof else ()
        texts += [entry.inclusion_proof.checkpoint.envelope] if entry.inclusion_proof else []
    return sum(map(len, parts)) + sum(map(len, texts))
