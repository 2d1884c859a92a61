"""Storage of signatures in a registry: layers of the tag `sha256-<hex>.sig`, and referrers with or without their API.

Entries of other writers stay unchanged, including fields that GKM does not know.
Source: distribution-spec 1.1, "Pushing Manifests with Subject" and "Unavailable Referrers API".
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.images.configuration import OCI_CONFIG
from gkm.images.local_image import LocalBlob
from gkm.images.manifest import (
    MAX_LAYERS,
    OCI_EMPTY,
    OCI_INDEX,
    OCI_MANIFEST,
    PREDICATE_ANNOTATION,
    Descriptor,
    Manifest,
    decode,
)
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from gkm.images.signatures.bundles import BUNDLE_PREFIX
from gkm.images.signatures.signature_formats import SIGN_PREDICATE, SIMPLE_SIGNING
from gkm.images.signing.forms import LegacyLayer


class _Layers(Struct):
    layers: list[dict[str, Any]]


class _Index(Struct):
    manifests: list[dict[str, Any]] | None = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LegacyTag:
    """The content of the tag with an image's legacy signatures; `raw` has the layers exactly as in the manifest."""

    media_type: str
    layers: tuple[Descriptor, ...]
    raw: tuple[dict[str, Any], ...]


def read_tag(registry: Registry, tag: Reference) -> LegacyTag:
    """Return the content of the tag; an empty one if the tag does not exist.

    Raises:
        GKMError: as Registry.manifest; METADATA_INVALID if the tag has other content.
    """
    try:
        manifest = registry.manifest(tag)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return LegacyTag(OCI_MANIFEST, (), ())
        raise
    raw = decode(manifest.raw, _Layers, f"manifest of {tag}").layers
    return LegacyTag(manifest.media_type, tuple(manifest.image().layers), tuple(raw))


def write_tag(registry: Registry, tag: Reference, before: LegacyTag, retained: list[int], layer: LegacyLayer) -> None:
    """Write the tag: the layers of `before` whose indices are in `retained`, then `layer`.

    Raises:
        GKMError: as push.manifest; TOO_LARGE if the tag is full.
    """
    if len(retained) >= MAX_LAYERS:
        raise GKMError(
            Reason.TOO_LARGE,
            f"{tag} holds {len(retained)} signatures, more than {MAX_LAYERS} are not read",
            "remove those that are not needed any more",
        )
    payload = _store_blob(registry, tag, layer.payload, SIMPLE_SIGNING)
    layers = [*(before.raw[number] for number in retained), {**payload, "annotations": layer.annotations}]
    # Payloads are not compressed, so the digest is the diff id; cosign counts the diff ids when it adds a signature.
    rootfs = {"type": "layers", "diff_ids": [each["digest"] for each in layers]}
    config = msgspec.json.encode({"architecture": "", "os": "", "config": {}, "rootfs": rootfs})
    manifest = {
        "schemaVersion": 2,
        "mediaType": before.media_type,
        "config": _store_blob(registry, tag, config, OCI_CONFIG),
        "layers": layers,
    }
    push.manifest(registry, tag, msgspec.json.encode(manifest), before.media_type)


def attach(
    registry: Registry, ref: Reference, subject: Manifest, bundle: bytes, predicate: str = SIGN_PREDICATE
) -> tuple[Descriptor, bool]:
    """Store a bundle as a referrer of an image; return it, and whether the registry lists it by its referrers API.

    Raises:
        GKMError: as push.manifest.
    """
    annotations = {"dev.sigstore.bundle.content": "dsse-envelope", PREDICATE_ANNOTATION: predicate}
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": BUNDLE_PREFIX,
        "config": _store_blob(registry, ref, b"{}", OCI_EMPTY),
        "layers": [_store_blob(registry, ref, bundle, BUNDLE_PREFIX)],
        "subject": {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.raw)},
        "annotations": annotations,
    }
    raw = msgspec.json.encode(manifest)
    digest = Manifest.from_bytes(raw, OCI_MANIFEST).digest
    referrer = Descriptor(OCI_MANIFEST, digest, len(raw), annotations, BUNDLE_PREFIX)
    return referrer, push.referrer(registry, ref.pinned(referrer.digest), raw, OCI_MANIFEST)


def list_in_fallback_tag(registry: Registry, ref: Reference, referrer: Descriptor) -> None:
    """Add a referrer to the index in the tag `sha256-<hex>`, for a registry without a referrers API.

    Raises:
        GKMError: as push.manifest; METADATA_INVALID if the tag has other content.
    """
    tag = ref.tag_of_digest()
    listed: list[dict[str, Any]] = []
    try:
        listed = decode(registry.manifest(tag).raw, _Index, f"index in {tag}").manifests or []
    except GKMError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
    if any(each.get("digest") == referrer.digest for each in listed):
        return
    entry = {**referrer.to_json(), "artifactType": referrer.artifact_type, "annotations": referrer.annotations}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, entry]}
    push.manifest(registry, tag, msgspec.json.encode(index), OCI_INDEX)


def _store_blob(registry: Registry, ref: Reference, data: bytes, media_type: str) -> dict[str, Any]:
    packed = LocalBlob.from_bytes(data, media_type)
    if not push.blob_exists(registry, ref, packed.descriptor):
        push.blob(registry, ref, packed)
    return packed.descriptor.to_json()
