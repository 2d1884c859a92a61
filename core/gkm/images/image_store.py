"""The places that hold images: registries, and OCI layouts and docker-archives on this machine.

Every command and check reads and writes images through these two interfaces, so a rule holds for every place.
"""

from typing import Protocol, Self

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import BlobDownload, ByteCounter, LocalBlob
from gkm.images.manifest import MAX_MANIFEST_BYTES, Descriptor, Manifest
from gkm.images.reference import Reference


class ImageSource(Protocol):
    """A place that images are read from. Thread-safe."""

    def check_allowed(self, ref: Reference) -> None:
        """Check that the configuration allows reading from the registry or path of a reference.

        Raises:
            GKMError: NOT_ALLOWED.
        """

    def has_mirrors(self, ref: Reference) -> bool:
        """Return whether the content of a reference may come from another host than its registry."""

    def without_mirrors(self) -> Self:
        """Return the same place, which is then read without mirrors."""

    def within(self, seconds: float) -> Self:
        """Return the same place with a deadline for all following requests, `seconds` from now."""

    def resolve(self, ref: Reference) -> str:
        """Return the digest that a reference names now.

        Raises:
            GKMError: as `manifest`.
        """

    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:
        """Return the manifest that a reference names; with a digest, exactly the bytes of that digest.

        Raises:
            GKMError: NOT_FOUND, NOT_ALLOWED, DIGEST_MISMATCH, METADATA_INVALID, TOO_LARGE beyond `limit` bytes;
                UNAUTHORIZED, REGISTRY_UNAVAILABLE; UNSAFE_CONTENT, METADATA_MISSING from a place on this machine.
        """

    def blob(self, ref: Reference, download: BlobDownload) -> None:
        """Download the missing bytes of a blob; they are verified only when this method returns.

        Raises:
            GKMError: as `manifest`.
        """

    def small_blob(self, ref: Reference, descriptor: Descriptor, limit: int) -> bytes:
        """Return the bytes of a small blob, at most `limit`, verified; raises as `manifest` does."""

    def referrers(self, ref: Reference) -> list[Descriptor]:
        """Return the descriptors of the manifests that refer to a pinned image; raises as `manifest` does."""


class ImageStore(ImageSource, Protocol):
    """A place that images are read from and written to."""

    def blob_exists(self, ref: Reference, descriptor: Descriptor) -> bool:
        """Return whether the repository of `ref` has a blob; raises as `store_manifest` does."""

    def mount_blob(self, ref: Reference, descriptor: Descriptor, source: Reference) -> bool:
        """Link a blob of the repository `source` into the repository of `ref`.

        Return False if the blob must be uploaded.
        """

    def store_blob(self, ref: Reference, blob: LocalBlob, counter: ByteCounter) -> None:
        """Upload a blob and report the bytes to `counter`; raises as `store_manifest` does."""

    def store_manifest(self, ref: Reference, raw: bytes, media_type: str) -> bool:
        """Store a manifest under the tag or digest of `ref`; return whether the store lists it as a referrer.

        Raises:
            GKMError: UNAUTHORIZED, NOT_ALLOWED, REGISTRY_UNAVAILABLE; NODE_ERROR when a local blob cannot be read;
                UNSAFE_CONTENT for a layout that leads elsewhere.
        """

    def tags(self, ref: Reference, limit: int) -> list[str]:
        """Return the tags of the repository of `ref`, at most `limit`; raises as `manifest` does."""


def find(source: ImageSource, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest | None:
    """Return the manifest that a reference names in `source`; None if it does not exist.

    Raises:
        GKMError: as `manifest`, but for NOT_FOUND.
    """
    try:
        return source.manifest(ref, limit)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return None
        raise
