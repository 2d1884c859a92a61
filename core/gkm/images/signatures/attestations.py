"""Read the signed statements about an image, such as its bill of materials; `evaluation` decides whether they count."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import OCI_EMPTY, PREDICATE_ANNOTATION, Descriptor
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.bundles import BUNDLE_PREFIX
from gkm.images.signatures.discovery import MAX_MANIFEST_BYTES, is_transient
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
"""Attestations of each type and form that verification reads, whoever attached them."""
MAX_REQUIRED_BYTES = 4 << 20
"""Size of an attestation that a policy requires, signed: 3 MiB of JSON. A bill of 5,000 packages has 2 MiB."""
MAX_ATTESTATION_BYTES = 16 << 20
"""Size of a signed statement: a list of a captured cache's files has up to 10 MiB, then base64. cosign reads 128 MiB.
"""
T = TypeVar("T")


def attestations(registry: Registry, ref: Reference, predicate_type: str) -> list[Descriptor]:
    """Return the attestations of this type that an image has, by what their descriptors state; raises GKMError."""
    found = [each for each in registry.referrers(ref) if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    return found[:MAX_ATTESTATIONS]


def attestation(registry: Registry, ref: Reference, found: Descriptor, predicate_type: str) -> Signature | None:
    """Return an attestation of a pinned image, not verified; None if it cannot be one.

    Raises:
        GKMError: the registry does not answer, or denies access.
    """
    try:
        layers = registry.manifest(ref.pinned(found.digest)).image().layers
        if not layers:
            return None
        return parse_bundle(registry.small_blob(ref, layers[0], MAX_ATTESTATION_BYTES), predicate_type)
    except GKMError as error:
        if is_transient(error):
            raise
        return None


@dataclass(slots=True)
class AttestationReader:
    """Reads the attestations of a pinned image that policies require, in both forms, one at a time.

    `read_error` is the first transient error: then the image may have more attestations. Nothing is verified.
    """

    registry: Registry
    ref: Reference
    read_error: GKMError | None = None
    _referrers: list[Descriptor] | None = field(default=None, init=False)
    _layers: list[Descriptor] | None = field(default=None, init=False)

    def of_type(self, predicate_type: str) -> Iterator[Signature]:
        """Yield the attestations that may be of a type, bundles first, at most MAX_READ of each form.

        An unreadable one has `problem` set.
        """
        if self._referrers is None:
            self._referrers = self._try_read(lambda: self.registry.referrers(self.ref)) or []
        for found in _candidates(self._referrers, predicate_type)[:MAX_READ]:
            yield from self._read(SignatureForm.BUNDLE, partial(self._bundle, found, predicate_type))
        if self._layers is None:
            self._layers = self._try_read(partial(_legacy_layers, self.registry, self.ref)) or []
        layers = [
            each
            for each in self._layers
            if each.annotations.get(LEGACY_TYPE_ANNOTATION, predicate_type) == predicate_type
        ]
        for layer in layers[:MAX_READ]:
            yield from self._read(SignatureForm.LEGACY, partial(self._legacy, layer, predicate_type))

    def _bundle(self, found: Descriptor, predicate_type: str) -> Signature | None:
        image = self.registry.manifest(self.ref.pinned(found.digest), MAX_MANIFEST_BYTES).image()
        stated = found.annotations.get(PREDICATE_ANNOTATION) or image.annotations.get(PREDICATE_ANNOTATION, "")
        bundles = [layer for layer in image.layers if layer.media_type.startswith(BUNDLE_PREFIX)]
        if not bundles or stated != predicate_type:
            return None
        raw = self.registry.small_blob(self.ref, bundles[0], MAX_REQUIRED_BYTES)
        return parse_bundle(raw, predicate_type, json_limits.check_predicate)

    def _legacy(self, layer: Descriptor, predicate_type: str) -> Signature:
        raw = self.registry.small_blob(self.ref, layer, MAX_REQUIRED_BYTES)
        return parse_legacy_attestation(raw, layer.annotations, predicate_type)

    def _read(self, form: SignatureForm, read: Callable[[], Signature | None]) -> Iterator[Signature]:
        try:
            found = self._try_read(read)
        except GKMError as error:
            found = Signature(form, problem=error.message)
        if found is not None:
            yield found

    def _try_read(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except GKMError as error:
            if not is_transient(error):
                raise
            self.read_error = self.read_error or error
            return None


def _candidates(referrers: list[Descriptor], predicate_type: str) -> list[Descriptor]:
    """Return the referrers that state a type, then those that state none and may be bundles: not all lists have it."""
    stated = [each for each in referrers if each.annotations.get(PREDICATE_ANNOTATION) == predicate_type]
    silent = [each for each in referrers if not each.annotations.get(PREDICATE_ANNOTATION)]
    return stated + [each for each in silent if each.artifact_type.startswith((BUNDLE_PREFIX, OCI_EMPTY))]


def _legacy_layers(registry: Registry, ref: Reference) -> list[Descriptor]:
    try:
        layers = registry.manifest(ref.tag_of_digest(".att"), MAX_MANIFEST_BYTES).image().layers
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return []
        raise
    return [layer for layer in layers if layer.media_type == DSSE]
