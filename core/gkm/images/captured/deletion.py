"""Delete a captured image from its registry, with its signatures and statements. Idempotent."""

from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries import delete
from gkm.images.registries.registry import MAX_REFERRER_BYTES, Registry
from gkm.images.signatures.discovery import legacy_tag

DELETE_SECONDS = 120.0
"""Total time for all requests to the registry."""


def delete_image(registry: Registry, ref: Reference) -> None:
    """Delete a pinned image, then its signatures and statements. `registry` must have no mirrors.

    The image goes first: where the registry refuses that, its signatures stay with it. They are found without
    the image too, so the next call completes one that was cut off.

    Raises:
        GKMError: NOT_ALLOWED or UNAUTHORIZED, the registry refuses; REGISTRY_UNAVAILABLE, try again.
    """
    registry = registry.within(DELETE_SECONDS)
    attached = [ref.pinned(each.digest) for each in registry.referrers(ref)]
    attached += [pinned for tag in (legacy_tag(ref), ref.tag_of_digest()) if (pinned := _target(registry, tag))]
    for each in (ref, *attached):
        delete.manifest(registry, each)


def _target(registry: Registry, tag: Reference) -> Reference | None:
    """Return what a tag names, pinned; None without the tag."""
    try:
        return tag.pinned(registry.manifest(tag, MAX_REFERRER_BYTES).digest)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return None
        raise
