"""Store an image: each blob, then the manifest, in a registry or in a layout on this machine."""

from gkm.images.image_store import ImageStore
from gkm.images.local_image import ByteCounter, LocalBlob, LocalImage, ProgressCallback
from gkm.images.manifest import Manifest
from gkm.images.reference import Reference


def image(
    registry: ImageStore, ref: Reference, packed: LocalImage, report: ProgressCallback = lambda _done, _of: None
) -> str:
    """Store an image under a reference and return its digest; skip blobs that the repository has.

    `report` receives the sent bytes and the total; the sent bytes decrease when an upload breaks off and restarts.

    Raises:
        GKMError: UNAUTHORIZED, NOT_ALLOWED or REGISTRY_UNAVAILABLE; NODE_ERROR when a local blob cannot be read.
    """
    blobs(registry, ref, packed, report)
    return manifest(registry, ref, packed.manifest, packed.media_type)


def blobs(
    registry: ImageStore, ref: Reference, packed: LocalImage, report: ProgressCallback = lambda _done, _of: None
) -> None:
    """Upload the blobs that the repository lacks; reports and raises as `image` does."""
    counter = ByteCounter(report, sum(blob.descriptor.size for blob in packed.blobs))
    for blob in packed.blobs:
        if registry.blob_exists(ref, blob.descriptor):
            counter.add(blob.descriptor.size)
        else:
            registry.store_blob(ref, blob, counter)


def blob(registry: ImageStore, ref: Reference, packed: LocalBlob) -> str:
    """Upload one blob to the repository of `ref` and return its digest; raises as `image` does."""
    registry.store_blob(ref, packed, ByteCounter(lambda _done, _of: None, packed.descriptor.size))
    return packed.descriptor.digest


def manifest(registry: ImageStore, ref: Reference, raw: bytes, media_type: str) -> str:
    """Upload a manifest under the tag or digest of `ref` and return its digest; raises as `image` does."""
    registry.store_manifest(ref, raw, media_type)
    return Manifest.from_bytes(raw, media_type).digest
