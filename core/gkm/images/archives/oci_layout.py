"""OCI image layouts (image-spec 1.1, "Image Layout") with one image: written whole or not at all, every digest checked.

`layout_store` reads and writes layouts with several images, and with signatures beside them.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images.archives.layout_files import (
    BLOBS,
    INDEX_FILE,
    LAYOUT_FILE,
    checked,
    read_small,
    small_blob,
)
from gkm.images.configuration import MAX_CONFIG_BYTES, read_config
from gkm.images.local_image import (
    ByteCounter,
    LocalBlob,
    LocalImage,
    ProgressCallback,
    check_blob,
    write_blob,
)
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

MAX_LAYOUT_FILE_BYTES = 4096
REF_NAME, _FULL_NAME = "org.opencontainers.image.ref.name", "io.containerd.image.name"


class _LayoutFile(Struct):
    version: str = field(name="imageLayoutVersion")


def write(image: LocalImage, path: Path, ref: Reference, report: ProgressCallback = lambda _done, _of: None) -> None:
    """Write an image as a new OCI layout to `path`. Its index names the image by the tag of `ref`.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists, DIGEST_MISMATCH when a blob changed since it was packed.
        OSError: a disk operation failed; no file remains.
    """
    with all_or_nothing(path) as temporary:
        blobs = temporary.joinpath(*BLOBS)
        blobs.mkdir(parents=True)
        manifest = LocalBlob.from_bytes(image.manifest, image.media_type)
        count = ByteCounter(report, sum(blob.descriptor.size for blob in (*image.blobs, manifest)))
        for blob in (*image.blobs, manifest):
            target = blobs / blob.descriptor.digest.removeprefix("sha256:")
            if target.exists():
                count.add(blob.descriptor.size)
                continue
            check_blob(write_blob(count.through(blob.pieces()), target, "").descriptor, blob.descriptor, str(path))
        (temporary / LAYOUT_FILE).write_text('{"imageLayoutVersion":"1.0.0"}')
        (temporary / INDEX_FILE).write_bytes(_index(manifest.descriptor, ref))
        temporary.chmod(0o755)


def open_layout(path: Path, *, elsewhere: int = 0) -> LocalImage:
    """Return the image in an OCI layout that holds no other manifest, every size and digest checked.

    The first `elsewhere` layers are in a registry, not in the layout.

    Raises:
        GKMError: METADATA_MISSING if `path` is no layout, METADATA_INVALID, TOO_LARGE, UNSAFE_CONTENT, DIGEST_MISMATCH.
        OSError: it cannot be read.
    """
    index = read_index(path)
    listed = _single_image(index.manifests or [], path)
    manifest = Manifest.from_bytes(small_blob(path, listed, MAX_MANIFEST_BYTES), listed.media_type)
    described = manifest.image()
    config = small_blob(path, described.config, MAX_CONFIG_BYTES)
    labels = read_config(config, str(path)).labels
    layers = [LocalBlob(each, checked(path, each)) for each in described.layers[elsewhere:]]
    return LocalImage(manifest.raw, manifest.media_type, (LocalBlob(described.config, config), *layers), labels)


def read_index(path: Path) -> ImageIndex:
    """Return the index of an OCI layout; raises as `open_layout` does."""
    version = decode(
        read_small(path, (LAYOUT_FILE,), MAX_LAYOUT_FILE_BYTES), _LayoutFile, str(path / LAYOUT_FILE)
    ).version
    if version.partition(".")[0] != "1":
        raise GKMError(Reason.METADATA_INVALID, f"{path} is a layout of version {version[:20]!r}; 1 is understood")
    return decode(read_small(path, (INDEX_FILE,), MAX_MANIFEST_BYTES), ImageIndex, str(path / INDEX_FILE))


@contextmanager
def all_or_nothing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename what the block wrote there to `path` if the block succeeds.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists.
    """
    if os.path.lexists(path):
        raise GKMError(Reason.NOT_ALLOWED, f"{path} exists already", "remove it, or name another path")
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}-", dir=path.absolute().parent) as work:
        temporary = Path(work) / "image"
        yield temporary
        temporary.rename(path)


def _index(manifest: Descriptor, ref: Reference) -> bytes:
    names = {REF_NAME: ref.tag, _FULL_NAME: f"{ref.name}:{ref.tag}"} if ref.tag else {}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [{**manifest.to_json(), "annotations": names}]}
    return msgspec.json.encode(index)


def _single_image(images: Iterable[Descriptor], path: Path) -> Descriptor:
    different = {found.digest: found for found in images}
    if len(different) != 1:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} holds {count_of(len(different), 'image')}, not one",
            "copy one image to a separate layout",
        )
    (image,) = different.values()
    if image.media_type not in (OCI_MANIFEST, DOCKER_MANIFEST):
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} holds {image.media_type[:100]!r}, not an image",
            "copy the image inside it to a separate layout",
        )
    return image
