"""Finding the signatures of an image in its registry. Nothing here decides whether one of them counts."""

from collections.abc import Iterator

from gkm.api.errors import GKMError, Reason
from gkm.images.bundles import BUNDLE_PREFIX
from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference
from gkm.images.registry import Registry
from gkm.images.signatures import SIMPLE_SIGNING, Form, Signature, parse_bundle, parse_legacy

MAX_SIGNATURES = 64
"""Of each form: what lies beyond is not read, and that is said."""
MAX_PAYLOAD_BYTES = 256 << 10


def find(registry: Registry, ref: Reference) -> Iterator[Signature]:
    """Yield the signatures of a pinned image, at most MAX_SIGNATURES of each form, bundles first.

    Raises:
        GKMError: REGISTRY_UNAVAILABLE and the like; what is there and malformed is yielded as a problem instead.
    """
    referrers = registry.referrers(ref)
    for descriptor in referrers[:MAX_SIGNATURES]:
        yield from _bundles(registry, ref, descriptor)
    if len(referrers) > MAX_SIGNATURES:
        # Whoever may push can attach thousands. The image is then refused unless a good one is among the first.
        yield Signature(Form.BUNDLE, problem=_unread(len(referrers)))
    yield from _legacy(registry, ref)


def _bundles(registry: Registry, ref: Reference, descriptor: Descriptor) -> Iterator[Signature]:
    # The descriptor's own artifactType is not to be trusted, nor filtered on: cosign 3.1's fallback index says
    # "application/vnd.oci.empty.v1+json" there. The manifest says what it is.
    try:
        image = registry.manifest(ref.pinned(descriptor.digest)).image()
        bundles = [layer for layer in image.layers if layer.media_type.startswith(BUNDLE_PREFIX)]
        if not bundles:
            return
        if image.subject is None or image.subject.digest != ref.digest:
            yield Signature(Form.BUNDLE, problem="it is attached to another image")
            return
        yield parse_bundle(registry.small_blob(ref, bundles[0], MAX_PAYLOAD_BYTES))
    except GKMError as error:
        if error.transient:
            raise
        yield Signature(Form.BUNDLE, problem=error.message)


def _legacy(registry: Registry, ref: Reference) -> Iterator[Signature]:
    tag = ref.target.replace(":", "-") + ".sig"
    try:
        layers = registry.manifest(ref.tagged(tag)).image().layers
    except GKMError as error:
        if error.transient:
            raise
        if error.reason is not Reason.NOT_FOUND:
            yield Signature(Form.LEGACY, problem=error.message)
        return
    for layer in layers[:MAX_SIGNATURES]:
        if layer.media_type != SIMPLE_SIGNING:
            continue
        try:
            yield parse_legacy(registry.small_blob(ref, layer, MAX_PAYLOAD_BYTES), layer.annotations)
        except GKMError as error:
            if error.transient:
                raise
            yield Signature(Form.LEGACY, problem=error.message)


def _unread(number: int) -> str:
    return f"{number} artifacts are attached to the image, only the first {MAX_SIGNATURES} were read"
