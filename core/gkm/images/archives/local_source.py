"""Recognize images on this machine by their content, and read a docker-archive as an image in a registry.

`layout_store` reads OCI layouts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

from gkm.api.errors import GKMError, Reason
from gkm.images.archives import docker_archive
from gkm.images.archives.compression import GZIP_MAGIC
from gkm.images.local_image import BlobDownload, LocalImage, small_blob
from gkm.images.local_reference import ARCHIVE, LAYOUT, LocalReference
from gkm.images.manifest import MAX_MANIFEST_BYTES, Descriptor, Manifest
from gkm.images.reference import Reference


class LocalSource(ABC):
    """An ImageSource without hosts, mirrors and deadlines: the base of all images on this machine."""

    def check_allowed(self, ref: Reference) -> None:  # noqa: ARG002 -- see ImageSource
        """Allow every path: the user named it on the command line, and the allow-list is about registries."""
        return

    def has_mirrors(self, ref: Reference) -> bool:  # noqa: ARG002 -- see ImageSource
        """Return False: a path has no mirror."""
        return False

    def without_mirrors(self) -> Self:
        """Return this source: it has no mirrors."""
        return self

    def within(self, seconds: float) -> Self:  # noqa: ARG002 -- see ImageSource
        """Return this source: reads from this machine have no deadline."""
        return self

    def resolve(self, ref: Reference) -> str:
        """Return the digest that a reference names: its own, or the digest of the manifest."""
        return ref.digest or self.manifest(ref).digest

    def blob(self, ref: Reference, download: BlobDownload) -> None:
        """Write the missing bytes of a blob to `download`, and verify the whole blob."""
        known = download.received
        for piece in self.pieces(ref, download.descriptor):
            known, fresh = max(0, known - len(piece)), piece[known:]
            if fresh:
                download.receive(fresh)
        download.verify(ref.name)

    def small_blob(self, ref: Reference, descriptor: Descriptor, limit: int) -> bytes:
        """Return the bytes of a small blob, verified; raise TOO_LARGE beyond `limit` bytes."""
        return small_blob(descriptor, limit, partial(self.blob, ref))

    @abstractmethod
    def pieces(self, ref: Reference, descriptor: Descriptor) -> Iterator[bytes]:
        """Yield the bytes of a blob, at most `descriptor.size`; raises as ImageSource.manifest does."""

    @abstractmethod
    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:
        """Return the manifest that a reference names; raises as ImageSource.manifest does."""


class ArchiveSource(LocalSource):
    """The image in a docker-archive, with the manifest that GKM builds for it: the archive holds none."""

    def __init__(self, path: Path, work: Path, tag: str | None) -> None:
        """Read and check the archive; `work` is an empty directory that exists as long as this object is used.

        Raises:
            GKMError, OSError: as docker_archive.open_archive.
        """
        self._image: LocalImage = docker_archive.open_archive(path, work, tag)
        self._blobs = {blob.descriptor.digest: blob for blob in self._image.blobs}

    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:  # noqa: ARG002 -- see ImageSource
        """Return the manifest that GKM builds for the archive's image; raise NOT_FOUND for another digest."""
        digest = self._image.digest
        if ref.target != digest and (ref.digest or (ref.tag or "").startswith("sha256-")):
            raise GKMError(Reason.NOT_FOUND, f"{ref} does not exist: the image of the archive has the digest {digest}")
        return Manifest(self._image.manifest, self._image.media_type, digest)

    def pieces(self, ref: Reference, descriptor: Descriptor) -> Iterator[bytes]:
        """Yield the bytes of a blob in the archive; raise NOT_FOUND if the image does not have it."""
        blob = self._blobs.get(descriptor.digest)
        if blob is None:
            raise GKMError(Reason.NOT_FOUND, f"{ref} has no blob {descriptor.digest}")
        return blob.pieces()

    def referrers(self, ref: Reference) -> list[Descriptor]:  # noqa: ARG002 -- see ImageSource
        """Return an empty list: a docker-archive has no place for referrers."""
        return []


_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def reference_to(path: Path) -> LocalReference:
    """Return the reference to the image at `path`: an OCI layout, or a docker-archive.

    Raises:
        GKMError: NOT_FOUND if the path does not exist, METADATA_INVALID if the format is unknown.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return LocalReference(LAYOUT, str(path))
    if not path.is_file():
        raise GKMError(Reason.NOT_FOUND, f"{path} does not exist", "name the output of `gkm cache build`")
    with path.open("rb") as file:
        start = file.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
    if start.startswith(GZIP_MAGIC):
        raise GKMError(Reason.METADATA_INVALID, f"{path} is compressed with gzip", "decompress it: gunzip FILE")
    if start[_TAR_MAGIC_AT:] != _TAR_MAGIC:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} is no OCI layout and no docker-archive",
            "name the output of `gkm cache build --to` or `docker save`",
        )
    return LocalReference(ARCHIVE, str(path))
