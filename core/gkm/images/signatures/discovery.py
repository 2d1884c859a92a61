"""Finding the signatures of an image in its registry. Nothing here decides whether one of them counts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import OCI_EMPTY, PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
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
"""Of each form: what lies beyond is not read, and that is said."""
MAX_PAYLOAD_BYTES = 256 << 10
MAX_MANIFEST_BYTES = 1 << 20
"""Of a manifest that holds signatures. 64 legacy ones with certificate, chain and log entry have some 640 KiB."""
MAX_HELD_BYTES = 4 << 20
"""All signatures of an image together, as they are held until they are judged: 128 real ones have less than half."""
T = TypeVar("T")


@dataclass(slots=True)
class DiscoveredSignatures:
    """The signatures that were read, bundles first; what is there and malformed is one with a problem.

    `unread` is set when not everything could be looked at, for a reason that may pass: then there may be more.
    """

    signatures: list[Signature] = field(default_factory=list)
    read_error: GKMError | None = None
    held_bytes: int = 0

    def try_read(self, form: SignatureForm, read: Callable[[], T]) -> T | None:
        """Return what `read` returns; what keeps it from that is written down, and keeps nothing else."""
        try:
            return read()
        except GKMError as error:
            if is_transient(error):
                self.read_error = self.read_error or error
            else:
                self.signatures.append(Signature(form, problem=error.message))
            return None

    def add(self, form: SignatureForm, read: Callable[[], Signature | None]) -> None:
        """Take in what `read` returns, as `look` does."""
        if signature := self.try_read(form, read):
            held = self.held_bytes + _size(signature)
            if held > MAX_HELD_BYTES:
                signature = Signature(form, problem=f"it and those before it have more than {MAX_HELD_BYTES} bytes")
            else:
                self.held_bytes = held
            self.signatures.append(signature)


def find_signatures(registry: Registry, ref: Reference) -> DiscoveredSignatures:
    """Return the signatures of a pinned image, at most MAX_SIGNATURES of each form.

    One form being out of reach does not hide the other: a good signature counts, wherever else nobody could look.

    Raises:
        GKMError: NOT_ALLOWED, when the configuration does not allow the registry.
    """
    registry.hosts.check_allowed(ref)
    found = DiscoveredSignatures()
    referrers = signatures_first(found.try_read(SignatureForm.BUNDLE, partial(registry.referrers, ref)) or [])
    for descriptor in referrers[:MAX_SIGNATURES]:
        found.add(SignatureForm.BUNDLE, partial(bundle, registry, ref, descriptor))
    if len(referrers) > MAX_SIGNATURES:
        # Whoever may push can attach thousands. The image is then refused unless a good one is among the first.
        found.signatures.append(Signature(SignatureForm.BUNDLE, problem=_truncation_problem(len(referrers))))
    for layer in found.try_read(SignatureForm.LEGACY, partial(_legacy_layers, registry, ref)) or []:
        found.add(SignatureForm.LEGACY, partial(legacy, registry, ref, layer))
    return found


def signatures_first(referrers: Iterable[Descriptor]) -> list[Descriptor]:
    """Return what refers to an image, most probable signatures first.

    Attestations and other artifacts, which a build attaches by dozens, hide no signature then. What names itself
    falsely does: who may push can also overwrite the whole list where the registry has no API for referrers.
    """
    return sorted(referrers, key=_improbability)


def _improbability(referrer: Descriptor) -> int:
    stated = referrer.annotations.get(PREDICATE_ANNOTATION, "")
    if stated and stated != SIGN_PREDICATE:
        return 3
    if referrer.artifact_type.startswith(BUNDLE_PREFIX):
        return 1 - (stated == SIGN_PREDICATE)
    # cosign's fallback index calls bundles "empty" (prior-art/oci-and-signatures.md).
    return 2 if referrer.artifact_type == OCI_EMPTY else 3


def is_transient(error: GKMError) -> bool:
    """Return whether an error says nothing of the image: the registry is away, or does not let us look."""
    return error.transient or error.reason is Reason.UNAUTHORIZED


def legacy_tag(ref: Reference) -> Reference:
    """Return where the legacy signatures of a pinned image are."""
    return ref.tag_of_digest(".sig")


def bundle(registry: Registry, ref: Reference, descriptor: Descriptor) -> Signature | None:
    """Return the bundle in a referrer; None where it is something else.

    Raises:
        GKMError: it cannot be read.
    """
    # The descriptor's own artifactType is not to be trusted, nor filtered on: cosign 3.1's fallback index says
    # "application/vnd.oci.empty.v1+json" there. The manifest says what it is.
    image = registry.manifest(ref.pinned(descriptor.digest), MAX_MANIFEST_BYTES).image()
    bundles = [layer for layer in image.layers if layer.media_type.startswith(BUNDLE_PREFIX)]
    if not bundles:
        return None
    if image.subject is None or image.subject.digest != ref.digest:
        return Signature(SignatureForm.BUNDLE, problem="it is attached to another image")
    return parse_bundle(registry.small_blob(ref, bundles[0], MAX_PAYLOAD_BYTES))


def legacy(registry: Registry, ref: Reference, layer: Descriptor) -> Signature | None:
    """Return the legacy signature in a layer; None where it is something else.

    Raises:
        GKMError: it cannot be read.
    """
    if layer.media_type != SIMPLE_SIGNING:
        return None
    return parse_legacy(registry.small_blob(ref, layer, MAX_PAYLOAD_BYTES), layer.annotations)


def _legacy_layers(registry: Registry, ref: Reference) -> list[Descriptor]:
    try:
        return registry.manifest(legacy_tag(ref), MAX_MANIFEST_BYTES).image().layers[:MAX_SIGNATURES]
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return []
        raise


def _size(signature: Signature) -> int:
    """Return how many bytes a signature holds."""
    parts = [signature.signed, signature.signature, signature.payload or b"", signature.certificate, signature.bundle]
    texts = list(signature.claims)
    if entry := signature.entry:
        parts += [entry.log_id, entry.body, entry.promise]
        parts += entry.proof.hashes if entry.proof else ()
        texts += [entry.proof.checkpoint] if entry.proof else []
    return sum(map(len, parts)) + sum(map(len, texts))


def _truncation_problem(number: int) -> str:
    return f"{number} artifacts are attached to the image, only the first {MAX_SIGNATURES} were read"
