"""Copy an image with what is attached to it: signatures and attestations in both forms, and every other referrer.

The bytes of every blob are checked against their digest before they are sent. A copy skips what the target has, so a
copy that broke off goes on where it ended, and a repeated one changes nothing. The tag comes last: it never names an
image without its signatures. The artifacts are bytes that others wrote; GKM verifies no signature here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.image_store import ImageSource, ImageStore, find
from gkm.images.local_image import BlobDownload, ByteCounter, LocalBlob, ProgressCallback
from gkm.images.manifest import Descriptor, Manifest
from gkm.images.reference import Reference
from gkm.images.signing import store

COSIGN_SUFFIXES = (".sig", ".att", ".sbom")
"""The tags `sha256-<hex><suffix>` of cosign 2 beside an image: signatures, attestations, bills of materials."""
MAX_ARTIFACTS = 512
"""Limit of artifacts that are attached to an image, directly or to each other; a build attaches a dozen."""
MAX_IMAGES = 64
"""The images of an index."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A signature, attestation or other artifact about the digest `subject`; `suffix`: of its cosign tag, else ""."""

    subject: str
    manifest: Manifest
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class ImageCopy:
    """Copies one image, blob by blob, through a file in `work`, an empty directory of the caller.

    `attached_at` is where the signatures of the image are: the image itself, or a repository for signatures.
    """

    source: ImageSource
    origin: Reference
    attached_at: Reference
    target: ImageStore
    destination: Reference
    work: Path
    report: ProgressCallback = lambda _done, _of: None

    def run(self) -> list[Artifact]:
        """Copy the image and return what was attached to it.

        Raises:
            GKMError: as ImageSource.manifest and ImageStore.store_manifest; TOO_LARGE beyond MAX_IMAGES and
                MAX_ARTIFACTS; as store.add_to_tag and store.store_referrer.
            OSError: a disk operation failed.
        """
        image = self.source.manifest(self.origin)
        images = [*self._named_by([image], self.origin), image]
        found = [each for one in images for each in attached(self.source, self.attached_at.pinned(one.digest))]
        artifacts = [each.manifest for each in found]
        inner = self._named_by(artifacts, self.attached_at)
        wanted = [(self.origin, each) for each in images] + [(self.attached_at, each) for each in (*inner, *artifacts)]
        blobs = {blob.digest: (at, blob) for at, each in wanted if not each.is_index for blob in _blobs(each)}
        counter = ByteCounter(self.report, sum(blob.size for _, blob in blobs.values()))
        for at, blob in blobs.values():
            self._copy_blob(at, blob, counter)
        for each in (*images, *inner):
            self.target.store_manifest(self.destination.pinned(each.digest), each.raw, each.media_type)
        for artifact in found:
            self._attach(artifact)
        self.target.store_manifest(self.destination, image.raw, image.media_type)
        return found

    def _named_by(self, roots: list[Manifest], at: Reference) -> list[Manifest]:
        """Return what the indexes among these manifests name, which may be indexes too, after what they name."""
        found = [*roots]
        for each in found:
            listed = (each.index().manifests or []) if each.is_index else []
            if len(found) + len(listed) > MAX_IMAGES + len(roots):
                what = (
                    f"{self.origin} is, or has attached, an index of more than the {MAX_IMAGES} images that are copied"
                )
                raise GKMError(Reason.TOO_LARGE, what, "name the digest of one image")
            found += [self.source.manifest(at.pinned(one.digest)) for one in listed]
        return found[len(roots) :][::-1]

    def _copy_blob(self, at: Reference, blob: Descriptor, counter: ByteCounter) -> None:
        if self.target.blob_exists(self.destination, blob) or self.target.mount_blob(self.destination, blob, at):
            counter.add(blob.size)
            return
        file = self.work / blob.digest.removeprefix("sha256:")
        try:
            with file.open("wb") as opened:
                self.source.blob(at, BlobDownload(blob, opened.write))
            self.target.store_blob(self.destination, LocalBlob(blob, file), counter)
        finally:
            file.unlink(missing_ok=True)

    def _attach(self, artifact: Artifact) -> None:
        subject = self.destination.pinned(artifact.subject)
        manifest = artifact.manifest
        if artifact.suffix:
            store.add_to_tag(self.target, subject.tag_of_digest(artifact.suffix), manifest)
            return
        store.store_referrer(self.target, subject, manifest.attached()[1], manifest.raw)


def attached(source: ImageSource, pinned: Reference) -> list[Artifact]:
    """Return the artifacts attached to an image, each after its subject: a signature can be about an attestation.

    Raises:
        GKMError: as ImageSource.referrers; TOO_LARGE beyond MAX_ARTIFACTS.
    """
    found: list[Artifact] = []
    subjects = [pinned.target]
    for subject in subjects:
        for each in _attached_to(source, pinned.pinned(subject)):
            found.append(each)
            if len(found) > MAX_ARTIFACTS:
                what = f"more than {MAX_ARTIFACTS} artifacts are attached to {pinned}"
                raise GKMError(Reason.TOO_LARGE, what, "delete those that are not needed")
            if each.manifest.digest not in subjects:
                subjects.append(each.manifest.digest)
    return found


def _attached_to(source: ImageSource, subject: Reference) -> Iterator[Artifact]:
    for digest in dict.fromkeys(each.digest for each in source.referrers(subject)):
        if manifest := find(source, subject.pinned(digest)):  # a list may name what was deleted
            yield Artifact(subject.target, manifest)
    for suffix in COSIGN_SUFFIXES:
        if manifest := find(source, subject.tag_of_digest(suffix)):
            yield Artifact(subject.target, manifest, suffix)


def _blobs(manifest: Manifest) -> list[Descriptor]:
    described = manifest.image()
    return [described.config, *described.layers]
