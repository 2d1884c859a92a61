"""Storage of signatures in a registry: layers of the tag `sha256-<hex>.sig`, and referrers with or without their API.

Each write is read back: a registry may answer with an older copy for some seconds, or may never list a referrer.
Entries of other writers stay unchanged, including fields that GKM does not know.
Source: distribution-spec 1.1, "Pushing Manifests with Subject" and "Unavailable Referrers API".
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.pacing import Backoff
from gkm.images.configuration import OCI_CONFIG
from gkm.images.image_store import ImageStore, find
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
from gkm.images.registries.hosts import UnexpectedStatus
from gkm.images.signatures.bundles import BUNDLE_PREFIX
from gkm.images.signatures.signature_formats import SIGN_PREDICATE, SIMPLE_SIGNING
from gkm.images.signing.forms import LegacyLayer

MAX_ROUNDS = 4
"""Attempts to write a tag; a concurrent writer can overwrite it, so each write is read back."""
STALE_SECONDS = 30.0
"""Seconds to wait until a registry serves what was written: a cache in front of it may keep tags and lists."""
_REFUSALS_TO_CHANGE = frozenset({400, 403, 405, 409, 412, 422})
"""The statuses of registries for a write to an immutable tag; the specification names no status."""
_PAUSES = Backoff(0.2, 2.0)


class TagUnusable(GKMError):
    """The tag of an image's legacy signatures or referrers cannot take this signature; another form may be stored."""


class _Layers(Struct):
    layers: list[dict[str, Any]]


class _Index(Struct):
    manifests: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class LegacyTag:
    """The content of the tag with an image's legacy signatures; `raw` has the layers exactly as in the manifest.

    `digest` is the manifest's digest, "" if the tag does not exist.
    """

    media_type: str
    layers: tuple[Descriptor, ...]
    raw: tuple[dict[str, Any], ...]
    digest: str = ""


def read_tag(registry: ImageStore, tag: Reference) -> LegacyTag:
    """Return the content of a tag with legacy signatures; an empty one if the tag does not exist.

    Raises:
        TagUnusable: METADATA_INVALID if the tag has other content.
        GKMError: as ImageSource.manifest.
    """
    with _content_of(tag):
        manifest = find(registry, tag)
        if manifest is None:
            return LegacyTag(OCI_MANIFEST, (), ())
        raw = decode(manifest.raw, _Layers, f"manifest of {tag}").layers
        return LegacyTag(manifest.media_type, tuple(manifest.image().layers), tuple(raw), manifest.digest)


def write_tag(registry: ImageStore, tag: Reference, before: LegacyTag, retained: list[int], layer: LegacyLayer) -> None:
    """Write a tag with legacy signatures: the layers of `before` with the indices `retained`, then `layer`.

    Raises:
        TagUnusable: TOO_LARGE if the tag is full; NOT_ALLOWED if the registry refuses to change it.
        GKMError: as push.manifest.
    """
    payload = _store_blob(registry, tag, layer.payload, SIMPLE_SIGNING)
    added = {**payload, "annotations": layer.annotations}
    _write_layers(registry, tag, before, [*(before.raw[number] for number in retained), added])


def add_to_tag(registry: ImageStore, tag: Reference, content: Manifest) -> None:
    """Add layers to a cosign tag; their blobs must be uploaded already.

    Raises:
        TagUnusable: as `read_tag` and `write_tag`.
        GKMError: as push.manifest; METADATA_INVALID for content that is no manifest.
    """
    layers = decode(content.raw, _Layers, f"manifest {content.digest}").layers
    for _ in range(MAX_ROUNDS):
        before = read_tag(registry, tag)
        missing = [layer for layer in layers if layer not in before.raw]
        if not missing:
            return
        if before.digest:
            _write_layers(registry, tag, before, [*before.raw, *missing])
        else:
            _replace(registry, tag, "", content.raw, content.media_type)
    raise overwritten(tag)


def _write_layers(registry: ImageStore, tag: Reference, before: LegacyTag, layers: list[dict[str, Any]]) -> None:
    if len(layers) > MAX_LAYERS:
        raise TagUnusable(
            Reason.TOO_LARGE,
            f"{tag} would hold {len(layers)} signatures, at most {MAX_LAYERS} are read",
            "remove those that are not needed any more",
        )
    # Payloads are not compressed, so the digest is the diff id; cosign counts the diff ids when it adds a signature.
    rootfs = {"type": "layers", "diff_ids": [each["digest"] for each in layers]}
    config = msgspec.json.encode({"architecture": "", "os": "", "config": {}, "rootfs": rootfs})
    manifest = {
        "schemaVersion": 2,
        "mediaType": before.media_type,
        "config": _store_blob(registry, tag, config, OCI_CONFIG),
        "layers": layers,
    }
    _replace(registry, tag, before.digest, msgspec.json.encode(manifest), before.media_type)


def attach(
    registry: ImageStore, ref: Reference, subject: Manifest, bundle: bytes, predicate: str = SIGN_PREDICATE
) -> Reference:
    """Store a bundle as a referrer of an image that the registry lists; return its reference.

    Raises:
        TagUnusable: the registry has no referrers API, and the tag `sha256-<hex>` cannot take the referrer.
        GKMError: as push.manifest; REGISTRY_UNAVAILABLE if the registry does not list the referrer.
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
    store_referrer(registry, ref, Descriptor(OCI_MANIFEST, digest, len(raw), annotations, BUNDLE_PREFIX), raw)
    return ref.pinned(digest)


def store_referrer(registry: ImageStore, ref: Reference, referrer: Descriptor, raw: bytes) -> None:
    """Upload the manifest of a referrer, and check that the registry lists it; its blobs must be uploaded already.

    Raises:
        TagUnusable, GKMError: as `attach`.
    """
    listed = registry.store_manifest(ref.pinned(referrer.digest), raw, referrer.media_type)
    if not listed and not any(_list_in_fallback_tag(registry, ref, referrer) for _ in range(MAX_ROUNDS)):
        raise overwritten(ref.tag_of_digest())
    if not _served(lambda: any(each.digest == referrer.digest for each in registry.referrers(ref))):
        raise GKMError(
            Reason.REGISTRY_UNAVAILABLE,
            f"{ref.registry} stored {referrer.digest}, but does not list it as a referrer of {ref}",
            "try again later; if it stays so, the registry's referrers API does not work",
        )


def overwritten(ref: Reference) -> GKMError:
    """Return the error for a tag that other writers overwrote at each attempt."""
    return GKMError(
        Reason.REGISTRY_UNAVAILABLE,
        f"the signature that was added to {ref} was overwritten {MAX_ROUNDS} times: others write at the same time",
        "sign again",
    )


def _list_in_fallback_tag(registry: ImageStore, ref: Reference, referrer: Descriptor) -> bool:
    """Add a referrer to the index in the tag `sha256-<hex>`, for a registry without a referrers API.

    Return whether the index had it already. Another writer can overwrite the index, so call it until it returns True.
    """
    tag = ref.tag_of_digest()
    with _content_of(tag):
        before = find(registry, tag)
        listed = (decode(before.raw, _Index, f"index in {tag}").manifests or []) if before else []
    if any(each.get("digest") == referrer.digest for each in listed):
        return True
    entry = {**referrer.to_json(), "artifactType": referrer.artifact_type, "annotations": referrer.annotations}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*listed, entry]}
    _replace(registry, tag, before.digest if before else "", msgspec.json.encode(index), OCI_INDEX)
    return False


@contextmanager
def _content_of(tag: Reference) -> Iterator[None]:
    """Raise TagUnusable if a tag of signatures has other content."""
    try:
        yield
    except GKMError as error:
        if error.reason is not Reason.METADATA_INVALID:
            raise
        raise TagUnusable(
            error.reason, f"{tag} holds no signatures: {error.message}", "remove the tag and sign again"
        ) from error


def _replace(registry: ImageStore, tag: Reference, before: str, raw: bytes, media_type: str) -> None:
    """Write a tag whose manifest has the digest `before`, "" for a new tag, and wait until the registry serves another.

    The next writer reads the tag, adds to it and writes it: an old copy would lose what was added now.
    """
    try:
        push.manifest(registry, tag, raw, media_type)
    except UnexpectedStatus as error:
        if not before or error.status not in _REFUSALS_TO_CHANGE:
            raise
        # The blobs were stored with the same credentials, so the registry refuses this tag.
        raise TagUnusable(
            Reason.NOT_ALLOWED,
            f"the registry answers {error.status} and does not change the tag {tag}, which exists: tags are immutable",
            "exempt the tags sha256-* from the rule of the registry that makes tags immutable",
        ) from error

    def is_another() -> bool:
        found = find(registry, tag)
        return (found.digest if found else "") != before

    _served(is_another)


def _served(written: Callable[[], bool]) -> bool:
    """Wait until `written`, STALE_SECONDS at most; return whether it is."""
    end, looks = time.monotonic() + STALE_SECONDS, 0
    while not written():
        if time.monotonic() >= end:
            return False
        looks += 1
        time.sleep(_PAUSES.pause(looks))
    return True


def _store_blob(registry: ImageStore, ref: Reference, data: bytes, media_type: str) -> dict[str, Any]:
    packed = LocalBlob.from_bytes(data, media_type)
    if not registry.blob_exists(ref, packed.descriptor):
        push.blob(registry, ref, packed)
    return packed.descriptor.to_json()
