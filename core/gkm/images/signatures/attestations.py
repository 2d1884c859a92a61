"""Read the signed statements about an image, such as its bill of materials.

`evaluation` decides whether they are valid.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import SIGNATURE_PREDICATES
from gkm.images.image_store import ImageSource
from gkm.images.manifest import OCI_EMPTY, PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.signatures.bundles import BUNDLE_PREFIX
from gkm.images.signatures.discovery import MAX_MANIFEST_BYTES, layers_in_tag
from gkm.images.signatures.signature_formats import (
    DSSE,
    LEGACY_TYPE_ANNOTATION,
    Signature,
    SignatureForm,
    parse_bundle,
    parse_legacy_attestation,
)

MAX_ATTESTATIONS = 64
MAX_READ = 32
"""Limit of attestations that verification reads of each type and form."""
MAX_REQUIRED_BYTES = 4 << 20
"""Limit of bytes of an attestation that a policy requires: 3 MiB of JSON. A bill of materials for 5,000 packages has 2
MiB."""
MAX_READ_BYTES = 32 << 20
"""Limit of bytes of all attestations that one verification reads."""
MAX_ATTESTATION_BYTES = 16 << 20
"""Limit of bytes of a signed statement: the file list of a captured cache has up to 10 MiB, before base64. cosign reads
128 MiB."""
T = TypeVar("T")


def attestations(registry: ImageSource, ref: Reference, predicate_type: str) -> list[Descriptor]:
    """Return the attestations of an image that their descriptors declare to be of this type; raises GKMError."""
    found = [each for each in registry.referrers(ref) if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    return found[:MAX_ATTESTATIONS]


def attestation(registry: ImageSource, ref: Reference, found: Descriptor, predicate_type: str) -> Signature | None:
    """Return an unverified attestation of an image; None if it is no attestation of this type.

    Raises:
        GKMError: the registry does not answer, or denies access.
    """
    try:
        layers = registry.manifest(ref.pinned(found.digest)).image().layers
        if not layers:
            return None
        raw = registry.small_blob(ref, layers[0], MAX_ATTESTATION_BYTES)
        return parse_bundle(raw, predicate_type, json_limits.check_predicate)
    except GKMError as error:
        if error.inconclusive:
            raise
        return None


@dataclass(frozen=True, slots=True)
class FetchedAttestation:
    """The bytes of an attestation from the registry; decoding them (`parse`) raises GKMError METADATA_INVALID."""

    form: SignatureForm
    parse: Callable[[], Signature]

    def signature(self) -> Signature:
        """Return the decoded attestation, which takes many times its memory; `problem` is set if it is malformed."""
        try:
            return self.parse()
        except GKMError as error:
            return Signature(self.form, problem=error.message)


@dataclass(slots=True)
class AttestationReader:
    """Reads the attestations of a pinned image that policies require, in both forms, one at a time.

    `read_error` is the first transient error: then the image may have more attestations. This class verifies no
    signature. A malformed attestation hides no other.
    """

    registry: ImageSource
    ref: Reference
    read_error: GKMError | None = None
    _lists: dict[SignatureForm, list[Descriptor]] = field(default_factory=dict, init=False)
    _remaining: int = field(default_factory=lambda: MAX_READ_BYTES, init=False)

    def of_type(self, predicate_type: str) -> Iterator[FetchedAttestation]:
        """Yield attestations that may be of a type: bundles first, then the legacy form, at most MAX_READ of each."""
        referrers = yield from self._listed(SignatureForm.BUNDLE, lambda: self.registry.referrers(self.ref))
        found = _candidates(referrers, predicate_type)
        yield from self._fetched(SignatureForm.BUNDLE, found, partial(self._bundle, predicate_type))
        tag = self.ref.tag_of_digest(".att")
        layers = yield from self._listed(SignatureForm.LEGACY, partial(layers_in_tag, self.registry, tag))
        found = [
            each
            for each in layers
            if each.media_type == DSSE
            and each.annotations.get(LEGACY_TYPE_ANNOTATION, predicate_type) == predicate_type
        ]
        yield from self._fetched(SignatureForm.LEGACY, found, partial(self._legacy, predicate_type))

    def types(self) -> list[str]:
        """Return the declared types of all attestations that were listed."""
        referrers, layers = (self._lists.get(form, []) for form in (SignatureForm.BUNDLE, SignatureForm.LEGACY))
        stated = [each.annotations.get(PREDICATE_ANNOTATION, "") for each in referrers]
        stated += [each.annotations.get(LEGACY_TYPE_ANNOTATION, "") for each in layers if each.media_type == DSSE]
        return sorted({each for each in stated if each and not each.startswith(SIGNATURE_PREDICATES)})

    def _listed(
        self, form: SignatureForm, read: Callable[[], list[Descriptor]]
    ) -> Generator[FetchedAttestation, None, list[Descriptor]]:
        """Return the list of a form, read once."""
        if form not in self._lists:
            self._lists[form] = (yield from self._read(form, read)) or []
        return self._lists[form]

    def _fetched(
        self,
        form: SignatureForm,
        found: list[Descriptor],
        fetch: Callable[[Descriptor], Callable[[], Signature] | None],
    ) -> Iterator[FetchedAttestation]:
        for each in found[:MAX_READ]:
            parse = yield from self._read(form, partial(fetch, each))
            if parse is not None:
                yield FetchedAttestation(form, parse)
        if len(found) > MAX_READ:
            yield _unusable(form, f"{len(found)} are attached, only the first {MAX_READ} were read")

    def _bundle(self, predicate_type: str, found: Descriptor) -> Callable[[], Signature] | None:
        image = self.registry.manifest(self.ref.pinned(found.digest), MAX_MANIFEST_BYTES).image()
        stated = found.annotations.get(PREDICATE_ANNOTATION) or image.annotations.get(PREDICATE_ANNOTATION, "")
        bundles = [layer for layer in image.layers if layer.media_type.startswith(BUNDLE_PREFIX)]
        if not bundles or stated != predicate_type:
            return None
        return partial(parse_bundle, self._content(bundles[0]), predicate_type, json_limits.check_predicate)

    def _legacy(self, predicate_type: str, layer: Descriptor) -> Callable[[], Signature]:
        return partial(parse_legacy_attestation, self._content(layer), layer.annotations, predicate_type)

    def _content(self, blob: Descriptor) -> bytes:
        if blob.size > self._remaining:
            raise GKMError(
                Reason.TOO_LARGE,
                f"the attestations of the image before it have nearly {MAX_READ_BYTES >> 20} MiB, the limit",
            )
        self._remaining -= blob.size
        return self.registry.small_blob(self.ref, blob, MAX_REQUIRED_BYTES)

    def _read(self, form: SignatureForm, read: Callable[[], T]) -> Generator[FetchedAttestation, None, T | None]:
        """Return what `read` does; None after an error, which is noted if it is transient, and yielded otherwise."""
        try:
            return read()
        except GKMError as error:
            if error.inconclusive:
                self.read_error = self.read_error or error
            else:
                yield _unusable(form, error.message)
            return None


def _unusable(form: SignatureForm, problem: str) -> FetchedAttestation:
    return FetchedAttestation(form, lambda: Signature(form, problem=problem))


def _candidates(referrers: list[Descriptor], predicate_type: str) -> list[Descriptor]:
    """Return the referrers that state a type, then others that may be bundles: not all lists have a type."""
    stated = [each for each in referrers if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    silent = [each for each in referrers if not each.annotations.get(PREDICATE_ANNOTATION)]
    return stated + [each for each in silent if each.artifact_type.startswith((BUNDLE_PREFIX, OCI_EMPTY))]
