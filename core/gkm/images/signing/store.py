"""Storage of signatures in a registry: layers of the tag `sha256-<hex>.sig`, and referrers with or without their API.

Entries of other writers stay unchanged, including fields that GKM does not know.
Source: distribution-spec 1.1, "Pushing Manifests with Subject" and "Unavailable Referrers API".
"""

import time
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.pacing import Backoff
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

STALE_SECONDS = 30.0
"""The longest wait until a registry answers with a tag as it was written: a cache before it keeps tags for seconds."""
_PAUSES = Backoff(0.2, 2.0)


class _Layers(Struct):
    layers: list[dict[str, Any]]


class _Index(Struct):
    manifests: list[dict[str, Any]] | None = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LegacyTag:
    """The content of the tag with an image's legacy signatures; `raw` has the layers exactly as in the manifest.

    `digest` is that of the manifest, "" if the tag does not exist.
    """

    media_type: str
    layers: tuple[Descriptor, ...]
    raw: tuple[dict[str, Any], ...]
    digest: str = ""


def read_tag(registry: Registry, tag: Reference) -> LegacyTag:
    """Return the content of the tag; an empty one if the tag does not exist.

    Raises:
        GKMError: as Registry.manifest; METADATA_INVALID if the tag has other content.
    """
    manifest = _found(registry, tag)
    if manifest is None:
        return LegacyTag(OCI_MANIFEST, (), ())
    raw = decode(manifest.raw, _Layers, f"manifest of {tag}").layers
    return LegacyTag(manifest.media_type, tuple(manifest.image().layers), tuple(raw), manifest.digest)


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
    _wait_until_served(registry, tag, before.digest)


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


def list_in_fallback_tag(registry: Registry, ref: Reference, referrer: Descriptor) -> bool:
    """Add a referrer to the index in the tag `sha256-<hex>`, for a registry without a referrers API.

    Return whether the index had it already. Another writer can overwrite the index, so call it until it returns True.

    Raises:
        GKMError: as push.manifest; METADATA_INVALID if the tag has other content.
    """
    tag = ref.tag_of_digest()
    before = _found(registry, tag)
    listed = (decode(before.raw, _Index, f"index in {tag}").manifests or []) if before else []
    if any(each.get("digest") == referrer.digest for each in listed):
        return True
    entry = {**referrer.to_json(), "artifactType": referrer.artifact_type, "annotations": referrer.annotations}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, entry]}
    push.manifest(registry, tag, msgspec.json.encode(index), OCI_INDEX)
    _wait_until_served(registry, tag, before.digest if before else "")
    return False


def _found(registry: Registry, tag: Reference) -> Manifest | None:
    try:
        return registry.manifest(tag)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return None
        raise


def _wait_until_served(registry: Registry, tag: Reference, before: str) -> None:
    """Wait until a tag that was written is another one than `before`, the digest that it had, "" for none.

    The next writer reads the tag, adds to it and writes it: an old copy would lose what was added now.
    """
    end, looks = time.monotonic() + STALE_SECONDS, 0
    while time.monotonic() < end:
        found = _found(registry, tag)
        if (found.digest if found else "") != before:
            return
        looks += 1
        time.sleep(_PAUSES.pause(looks))


def _store_blob(registry: Registry, ref: Reference, data: bytes, media_type: str) -> dict[str, Any]:
    packed = LocalBlob.from_bytes(data, media_type)
    if not push.blob_exists(registry, ref, packed.descriptor):
        push.blob(registry, ref, packed)
    return packed.descriptor.to_json()
