"""Read the output of `docker save`, such as MCV's examples: one tar with manifest.json, a configuration and its layers.

Format: docker's image specification v1.2, "Combined Image JSON + Filesystem Changeset Format", as skopeo reads it
(docker-archive:). It holds no registry manifest, so GKM builds the one that `gkm cache build` would write.
"""

import hashlib
import re
from pathlib import Path

from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images.archives.archive_index import ArchiveIndex, ByteRange
from gkm.images.archives.deflate import deflated
from gkm.images.archives.inflate import GZIP_MAGIC, inflated
from gkm.images.configuration import MAX_CONFIG_BYTES, OCI_LAYER, assemble_image, labels_in
from gkm.images.local_image import LocalBlob, LocalImage, StreamHasher, write_blob
from gkm.images.manifest import MAX_LAYERS, Descriptor, decode

MANIFEST = "manifest.json"
MAX_LISTING_BYTES = 1 << 20
_HEX = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?", re.ASCII)


class ManifestEntry(Struct, rename="pascal"):
    """One image in manifest.json: the names of its members."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


class _RootFS(Struct):
    diff_ids: list[str]


class _Config(Struct):
    rootfs: _RootFS = field(default_factory=lambda: _RootFS([]))


def open_archive(path: Path, work: Path) -> LocalImage:
    """Return the one image in an archive, with every stated digest checked.

    Layers without gzip are compressed into new files in `work`, which must exist until the image is stored, because
    MCV's
    readers accept only gzip.

    Raises:
        GKMError: METADATA_MISSING when it is no such archive, METADATA_INVALID, DIGEST_MISMATCH, CONTENT_MISMATCH,
            TOO_LARGE, UNSAFE_CONTENT.
        OSError: it cannot be read, or the disk refused.
    """
    index = ArchiveIndex.from_file(path)
    entry = _single_image(
        decode(index.small(MANIFEST, MAX_LISTING_BYTES), list[ManifestEntry], f"{MANIFEST} of {path}"), path
    )
    config = index.small(entry.config, MAX_CONFIG_BYTES)
    _check_name(entry.config, config, path)
    diff_ids = decode(config, _Config, f"configuration in {path}").rootfs.diff_ids
    if len(diff_ids) != len(entry.layers) or not 1 <= len(diff_ids) <= MAX_LAYERS:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} lists {count_of(len(entry.layers), 'layer')}, its configuration {len(diff_ids)}; "
            f"1 to {MAX_LAYERS} are read",
        )
    layers = [
        _layer(index, name, diff_id, work / f"layer-{number}.tar.gz")
        for number, (name, diff_id) in enumerate(zip(entry.layers, diff_ids, strict=True))
    ]
    return assemble_image(config, layers, labels_in(config, str(path)))


def _single_image(images: list[ManifestEntry], path: Path) -> ManifestEntry:
    if len(images) != 1:
        raise GKMError(
            Reason.METADATA_INVALID,
            f"{path} holds {count_of(len(images), 'image')}, not one",
            "save one image alone",
        )
    return images[0]


def _check_name(name: str, config: bytes, path: Path) -> None:
    """Check the digest in a configuration's name, as docker writes it."""
    stated = _HEX.fullmatch(name)
    if stated and stated[1] != hashlib.sha256(config).hexdigest():
        raise GKMError(
            Reason.DIGEST_MISMATCH,
            f"the configuration in {path} has another digest than its name {name}: it was changed",
        )


def _layer(index: ArchiveIndex, name: str, diff_id: str, target: Path) -> LocalBlob:
    """Return a layer as gzip; a layer that is gzip already stays in place."""
    byte_range = index.find(name)
    unpacked = StreamHasher()
    if next(index.pieces(byte_range), b"").startswith(GZIP_MAGIC):
        layer = _gzip_layer(index, byte_range, unpacked)
    else:
        layer = write_blob(deflated(unpacked.through(inflated(index.pieces(byte_range)))), target, OCI_LAYER)
    if unpacked.digest != diff_id:
        raise GKMError(
            Reason.DIGEST_MISMATCH,
            f"layer {name[:80]} in {index.path} unpacks to {unpacked.digest}, its configuration says {diff_id[:80]!r}",
        )
    return layer


def _gzip_layer(index: ArchiveIndex, byte_range: ByteRange, unpacked: StreamHasher) -> LocalBlob:
    packed = StreamHasher()
    for _ in unpacked.through(inflated(packed.through(index.pieces(byte_range)))):
        pass
    return LocalBlob(Descriptor(OCI_LAYER, packed.digest, byte_range.size), index.path, byte_range.offset)
