"""Delete a captured image from its registry, with its signatures and statements. Idempotent.

A client with push access decides what a referrers list and the tags beside an image name: manifests of other images,
too. So each of them is read first, and deleted only if it belongs to the deleted image and to nothing else.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import OCI_INDEX
from gkm.images.reference import Reference
from gkm.images.registries import delete
from gkm.images.registries.registry import MAX_REFERRER_BYTES, Registry
from gkm.images.signatures.attestations import MAX_ATTESTATIONS
from gkm.images.signatures.discovery import (
    MAX_MANIFEST_BYTES,
    MAX_SIGNATURES,
    is_transient,
    legacy,
    legacy_tag,
    signatures_first,
)

T = TypeVar("T")

DELETE_SECONDS = 120.0
"""Total time for all requests to the registry."""
MAX_ATTACHED = MAX_SIGNATURES + MAX_ATTESTATIONS
"""Referrers that are read. GKM's agents attach two."""


def delete_image(registry: Registry, ref: Reference, is_named: Callable[[str], bool]) -> None:
    """Delete a pinned image, then its signatures and statements. `registry` must have no mirrors.

    `is_named` returns whether a cache object names a digest: nothing that is attached and named goes. What cannot be
    read, or belongs to another image, stays.

    The image goes first: where the registry refuses that, its signatures stay with it. They are found without
    the image too, so the next call completes one that was cut off.

    Raises:
        GKMError: NOT_ALLOWED or UNAUTHORIZED, the registry refuses; REGISTRY_UNAVAILABLE, try again.
    """
    registry = registry.within(DELETE_SECONDS)
    # Before the image: some registries list nothing without it.
    referrers = signatures_first(_readable(lambda: registry.referrers(ref)) or [])
    digests = list(dict.fromkeys(each.digest for each in referrers))[:MAX_ATTACHED]
    delete.manifest(registry, ref)
    deleted = set[str]()
    for digest in digests:
        if not is_named(digest) and _is_referrer(registry, ref, digest):
            delete.manifest(registry, ref.pinned(digest))
            deleted.add(digest)
    signatures = _readable(lambda: _legacy_signatures(registry, ref))
    if signatures is not None and not is_named(signatures):
        delete.manifest(registry, ref.pinned(signatures))
    index = _readable(lambda: _fallback_index(registry, ref, deleted))
    if index is not None and not is_named(index):
        delete.manifest(registry, ref.pinned(index))


def _is_referrer(registry: Registry, ref: Reference, digest: str) -> bool:
    """Return whether a manifest states that it is attached to the image, as GKM and cosign attach."""
    image = _readable(lambda: registry.manifest(ref.pinned(digest), MAX_MANIFEST_BYTES).image())
    return image is not None and image.subject is not None and image.subject.digest == ref.digest


def _legacy_signatures(registry: Registry, ref: Reference) -> str | None:
    """Return the digest of the manifest with legacy signatures, if all of its layers sign this image and no other."""
    manifest = registry.manifest(legacy_tag(ref), MAX_MANIFEST_BYTES)
    layers = manifest.image().layers
    for layer in layers:
        signature = legacy(registry, ref, layer)
        if signature is None or signature.claims != (ref.target,):
            return None
    return manifest.digest if layers else None


def _fallback_index(registry: Registry, ref: Reference, deleted: Collection[str]) -> str | None:
    """Return the digest of the index under the fallback tag, if nothing that it lists is there any more."""
    manifest = registry.manifest(ref.tag_of_digest(), MAX_REFERRER_BYTES)
    if manifest.media_type != OCI_INDEX:
        return None
    listed = {each.digest for each in manifest.index().manifests or []} - set(deleted)
    if len(listed) > MAX_ATTACHED or not all(_is_gone(registry, ref.pinned(digest)) for digest in listed):
        return None
    return manifest.digest


def _is_gone(registry: Registry, ref: Reference) -> bool:
    try:
        registry.manifest(ref, MAX_MANIFEST_BYTES)
    except GKMError as error:
        if is_transient(error):
            raise
        return error.reason is Reason.NOT_FOUND
    return False


def _readable(read: Callable[[], T]) -> T | None:
    """Return what `read` returns; None if it does not exist, or is nothing that GKM would have written.

    Raises:
        GKMError: REGISTRY_UNAVAILABLE or UNAUTHORIZED.
    """
    try:
        return read()
    except GKMError as error:
        if is_transient(error):
            raise
        return None
