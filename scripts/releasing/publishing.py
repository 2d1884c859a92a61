"""Stores the images of a release in a registry, signed as caches are, with their SBOMs and provenance as attestations.

What reads and signs is the product's own code, so `gkm cache verify` and `gkm doctor` verify what this stores.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import LocalBlob, LocalImage
from gkm.images.manifest import OCI_INDEX, Descriptor
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from gkm.images.signing import sign
from gkm.images.signing.forms import ImageSigner

from releasing import files, layout, provenance, sbom


def publish(
    directory: Path, version: str, repository: str, registry: Registry, signer: Callable[[], ImageSigner]
) -> Iterator[str]:
    """Store all images below `repository`, such as registry.example/team; yield what was stored.

    Everything is stored before the first `signer`, one for each process, is requested: the certificate of an identity
    is valid for minutes. A tag is written last, so it names nothing that is not signed, and never changes.

    Raises:
        GKMError: the registry refused something; what was stored stays, and the same call completes it. NOT_ALLOWED if
            the version was published with other images.
    """
    paths = sorted((directory / files.IMAGES).iterdir())
    for path in paths:
        _store(registry, Reference.parse(f"{repository}/{path.name}:{version}"), path)
    for path in paths:
        ref, made = Reference.parse(f"{repository}/{path.name}:{version}"), signer()
        statement = json.loads((directory / files.provenance_file(path.name)).read_bytes())
        for image in layout.images(path):
            pinned = ref.pinned(image.digest)
            document = json.loads((directory / files.sbom_file(path.name, image.platform)).read_bytes())
            sign.attest(registry, pinned, sbom.PREDICATE, document, made)
            sign.attest(registry, pinned, provenance.PREDICATE, statement["predicate"], made)
            sign.sign(registry, pinned, made)
        pinned = ref.pinned(layout.index_of(path)["digest"])
        sign.attest(registry, pinned, provenance.PREDICATE, statement["predicate"], made)
        signed = sign.sign(registry, pinned, made)
        push.manifest(registry, ref, _index(path), OCI_INDEX)
        yield f"{ref}@{signed.digest} signed ({signed.form})"


def _store(registry: Registry, ref: Reference, path: Path) -> None:
    """Store the images of a process by their digests, and check that the tag names no others."""
    for image in layout.images(path):
        push.image(registry, ref.pinned(image.digest), _local(image))
    digest = push.manifest(registry, ref.pinned(layout.index_of(path)["digest"]), _index(path), OCI_INDEX)
    try:
        published = registry.resolve(ref)
    except GKMError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return
    if published != digest:
        raise GKMError(
            Reason.NOT_ALLOWED,
            f"{ref} is published as {published}, this release has {digest}: whoever installed it has the other one",
            "publish these images with a new version",
        )


def _index(path: Path) -> bytes:
    return layout.blob_path(path, layout.index_of(path)["digest"]).read_bytes()


def _local(image: layout.Image) -> LocalImage:
    manifest = image.manifest
    entries = [manifest["config"], *manifest["layers"]]
    blobs = [
        LocalBlob(
            Descriptor(entry["mediaType"], entry["digest"], entry["size"]),
            layout.blob_path(image.directory, entry["digest"]),
        )
        for entry in entries
    ]
    raw = layout.blob_path(image.directory, image.digest).read_bytes()
    return LocalImage(raw, str(image.descriptor["mediaType"]), tuple(blobs), dict(image.labels))
