"""OCI image layouts (image-spec 1.1, "Image Layout") with one image: written whole or not at all, every digest checked.

Reading never follows a link: a layout may come from anybody, and what it names is read with our rights.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images.archives.plain_files import open_file, read_small
from gkm.images.configuration import MAX_CONFIG_BYTES, labels_in
from gkm.images.local_image import PIECE_BYTES, Count, LocalBlob, LocalImage, ProgressCallback, counted, write_blob
from gkm.images.manifest import (
    DOCKER_MANIFEST,
    MAX_MANIFEST_BYTES,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    ImageIndex,
    Manifest,
    decode,
)
from gkm.images.reference import Reference

LAYOUT_FILE, INDEX_FILE = "oci-layout", "index.json"
MAX_LAYOUT_FILE_BYTES = 4096
_REF_NAME, _FULL_NAME = "org.opencontainers.image.ref.name", "io.containerd.image.name"
_BLOBS = ("blobs", "sha256")


class _LayoutFile(Struct):
    version: str = field(name="imageLayoutVersion")


def write(image: LocalImage, path: Path, ref: Reference, report: ProgressCallback = lambda _done, _of: None) -> None:
    """Write a layout to `path`, which must not exist. Its index names the image by the tag of `ref`.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists, DIGEST_MISMATCH when a blob changed since it was packed.
        OSError: the disk refused; nothing is left.
    """
    refuse_existing(path)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}-", dir=path.absolute().parent))
    try:
        blobs = temporary.joinpath(*_BLOBS)
        blobs.mkdir(parents=True)
        manifest = LocalBlob.from_bytes(image.manifest, image.media_type)
        count = Count(report, sum(blob.descriptor.size for blob in (*image.blobs, manifest)))
        for blob in (*image.blobs, manifest):
            target = blobs / blob.descriptor.digest.removeprefix("sha256:")
            if target.exists():
                count.add(blob.descriptor.size)
                continue
            parts = counted(blob.pieces(), count.add)
            _check_same(write_blob(parts, target, blob.descriptor.media_type).descriptor, blob.descriptor)
        (temporary / LAYOUT_FILE).write_text('{"imageLayoutVersion":"1.0.0"}')
        (temporary / INDEX_FILE).write_bytes(_index(manifest.descriptor, ref))
        temporary.chmod(0o755)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def open_layout(path: Path) -> LocalImage:
    """Return the one image in a layout; every size and digest in it has been checked.

    Raises:
        GKMError: METADATA_MISSING when it is no layout, METADATA_INVALID, TOO_LARGE, UNSAFE_CONTENT, DIGEST_MISMATCH.
        OSError: it cannot be read.
    """
    version = decode(
        read_small(path, (LAYOUT_FILE,), MAX_LAYOUT_FILE_BYTES), _LayoutFile, str(path / LAYOUT_FILE)
    ).version
    if version.partition(".")[0] != "1":
        raise GKMError(Reason.METADATA_INVALID, f"{path} is a layout of version {version[:20]!r}; 1 is understood")
    listed = _single_image(
        decode(read_small(path, (INDEX_FILE,), MAX_MANIFEST_BYTES), ImageIndex, str(path / INDEX_FILE)), path
    )
    manifest = Manifest.from_bytes(_blob(path, listed, MAX_MANIFEST_BYTES), listed.media_type)
    described = manifest.image()
    config = _blob(path, described.config, MAX_CONFIG_BYTES)
    labels = labels_in(config, str(path))
    layers = [LocalBlob(layer, _checked(path, layer)) for layer in described.layers]
    return LocalImage(manifest.raw, manifest.media_type, (LocalBlob(described.config, config), *layers), labels)


def refuse_existing(path: Path) -> None:
    """Raise NOT_ALLOWED where something is at `path`."""
    if os.path.lexists(path):
        raise GKMError(Reason.NOT_ALLOWED, f"{path} exists already", "remove it, or name another place")


def _index(manifest: Descriptor, ref: Reference) -> bytes:
    names = {_REF_NAME: ref.tag, _FULL_NAME: f"{ref.name}:{ref.tag}"} if ref.tag else {}
    described = {"mediaType": manifest.media_type, "digest": manifest.digest, "size": manifest.size}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [{**described, "annotations": names}]}
    return json.dumps(index, separators=(",", ":")).encode()


def _single_image(index: ImageIndex, path: Path) -> Descriptor:
    images = {found.digest: found for found in index.manifests or []}
    if len(images) != 1:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} holds {count_of(len(images), 'image')}, not one",
            "copy the one that is meant to a layout of its own",
        )
    (image,) = images.values()
    if image.media_type not in (OCI_MANIFEST, DOCKER_MANIFEST):
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} holds {image.media_type[:100]!r}, not an image",
            "copy the image inside it to a layout of its own",
        )
    return image


def _blob(root: Path, descriptor: Descriptor, limit: int) -> bytes:
    raw = read_small(root, (*_BLOBS, descriptor.digest.removeprefix("sha256:")), limit)
    _check_same(LocalBlob.from_bytes(raw, "").descriptor, descriptor)
    return raw


def _checked(root: Path, descriptor: Descriptor) -> Path:
    """Return the file of a blob that has its size and its digest."""
    parts = (*_BLOBS, descriptor.digest.removeprefix("sha256:"))
    with os.fdopen(open_file(root, parts), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256()
        # A layer of another size is not worth reading.
        while size == descriptor.size and (piece := file.read(PIECE_BYTES)):
            digest.update(piece)
    _check_same(Descriptor("", f"sha256:{digest.hexdigest()}", size), descriptor)
    return root.joinpath(*parts)


def _check_same(found: Descriptor, wanted: Descriptor) -> None:
    if found.size != wanted.size:
        raise GKMError(
            Reason.DIGEST_MISMATCH, f"blob {wanted.digest} has {found.size} bytes, its manifest says {wanted.size}"
        )
    if found.digest != wanted.digest:
        raise GKMError(
            Reason.DIGEST_MISMATCH, f"blob {wanted.digest} has the digest {found.digest}: it was changed or is damaged"
        )
