"""Archives of `docker save`, such as MCV's examples: one tar with manifest.json, a configuration and its layers.

Format: docker's image specification v1.2, "Combined Image JSON + Filesystem Changeset Format", as skopeo reads it
(docker-archive:). It holds no registry manifest, so GKM builds the one that `gkm cache build` would write. GKM writes
layers as plain tars that are named by their digests, as docker does.

An index of the members of the tar file serves to read them in place: without extraction and without following links.
"""

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images.archives.archive import BLOCK, ByteStream, members
from gkm.images.archives.compression import GZIP_MAGIC, deflated, inflated
from gkm.images.archives.member_names import checked_path
from gkm.images.archives.oci_layout import all_or_nothing
from gkm.images.configuration import MAX_CONFIG_BYTES, OCI_LAYER, assemble_image, read_config
from gkm.images.local_image import (
    ByteCounter,
    LocalBlob,
    LocalImage,
    ProgressCallback,
    StreamHasher,
    check_blob,
    file_pieces,
    write_blob,
)
from gkm.images.manifest import MAX_LAYERS, Descriptor, decode
from gkm.images.reference import Reference

MANIFEST = "manifest.json"
MAX_LISTING_BYTES = 1 << 20
_HEX = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?", re.ASCII)
MAX_MEMBERS = 10_000
"""Limit of members in an archive; an image of 64 layers has a few hundred."""
_MAX_NAMES = 5


class ManifestEntry(Struct, rename="pascal"):
    """One image in manifest.json: the names of its configuration and layer members in the tar file."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


class _RootFS(Struct):
    diff_ids: list[str]


class _Config(Struct):
    rootfs: _RootFS = field(default_factory=lambda: _RootFS([]))


def open_archive(path: Path, work: Path, tag: str | None = None) -> LocalImage:
    """Return the one image in an archive, or the one that its manifest.json calls `tag`; every digest is checked.

    Layers without gzip are compressed into new files in `work`, which must exist until the image is stored, because
    MCV's readers accept only gzip.

    Raises:
        GKMError: METADATA_MISSING if the file is no docker archive, METADATA_INVALID, DIGEST_MISMATCH,
            CONTENT_MISMATCH,
            TOO_LARGE, UNSAFE_CONTENT.
        OSError: it cannot be read, or a disk operation failed.
    """
    index = ArchiveIndex.from_file(path)
    entry = _single_image(
        decode(index.small(MANIFEST, MAX_LISTING_BYTES), list[ManifestEntry], f"{MANIFEST} of {path}"), path, tag
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
    return assemble_image(config, layers, read_config(config, str(path)).labels)


def _single_image(images: list[ManifestEntry], path: Path, tag: str | None) -> ManifestEntry:
    fitting = [each for each in images if tag is None or tag in (each.repo_tags or [])]
    if len(fitting) != 1:
        what = f"{path} holds {count_of(len(fitting), 'image')}{f' {tag}' if tag else ''}, not one"
        names = [name for each in images for name in each.repo_tags or []][:_MAX_NAMES]
        named = f"name one of {', '.join(names)[:200]!r}" if names else "save one image alone"
        raise GKMError(Reason.METADATA_INVALID, what, named)
    return fitting[0]


def _check_name(name: str, config: bytes, path: Path) -> None:
    """Check the digest in a configuration's name, as docker writes it."""
    stated = _HEX.fullmatch(name)
    if stated and stated[1] != hashlib.sha256(config).hexdigest():
        raise GKMError(
            Reason.DIGEST_MISMATCH,
            f"the configuration in {path} has another digest than its name {name}: it was changed",
        )


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Where the content of a member lies in the archive: `size` bytes from `offset` on."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ArchiveIndex:
    """The regular members of a tar file, by name."""

    path: Path
    ranges: dict[str, ByteRange]

    @classmethod
    def from_file(cls, path: Path) -> "ArchiveIndex":
        """Return the index of a tar file.

        Raises:
            GKMError: UNSAFE_CONTENT for devices and for names that lead elsewhere or occur twice, TOO_LARGE for more
                than MAX_MEMBERS, CONTENT_MISMATCH for a damaged or truncated file.
            OSError: it cannot be read.
        """
        ranges: dict[str, ByteRange] = {}
        target = path.resolve()
        stream = ByteStream(file_pieces(target, 0, target.stat().st_size))
        for number, (member, _) in enumerate(members(stream, skip_links=True)):
            if number >= MAX_MEMBERS:
                raise GKMError(Reason.TOO_LARGE, f"{path} has more than {MAX_MEMBERS} members: it holds no image")
            name = checked_path(member.name)
            if member.directory:
                continue
            if name in ranges:
                raise GKMError(Reason.UNSAFE_CONTENT, f"{path} holds {name[:80]!r} twice")
            ranges[name] = ByteRange(stream.position, member.size)
        return cls(target, ranges)

    def pieces(self, byte_range: ByteRange) -> Iterator[bytes]:
        """Yield the bytes of a range of the tar file.

        Raises:
            OSError: it cannot be read, or the file became shorter.
        """
        return file_pieces(self.path, byte_range.offset, byte_range.size)

    def small(self, name: str, limit: int) -> bytes:
        """Return the content of a small member of the tar file.

        Raises:
            GKMError: METADATA_MISSING for a missing member, TOO_LARGE beyond `limit` bytes.
            OSError: it cannot be read.
        """
        byte_range = self.find(name)
        if byte_range.size > limit:
            raise GKMError(
                Reason.TOO_LARGE, f"{name[:80]} in {self.path} has {byte_range.size} bytes, at most {limit} are read"
            )
        return b"".join(self.pieces(byte_range))

    def find(self, name: str) -> ByteRange:
        """Return where a member lies in the tar file; raises METADATA_MISSING if it has no plain file of that name."""
        byte_range = self.ranges.get(name)
        if byte_range is None:
            raise GKMError(Reason.METADATA_MISSING, f"{self.path} holds no plain file {name[:80]!r}")
        return byte_range


def _layer(index: ArchiveIndex, name: str, diff_id: str, target: Path) -> LocalBlob:
    """Return a layer as gzip; a layer that is gzip already stays in place."""
    byte_range = index.find(name)
    packed, unpacked = StreamHasher(), StreamHasher()
    content = inflated(packed.through(index.pieces(byte_range)))
    if next(index.pieces(byte_range), b"").startswith(GZIP_MAGIC):
        unpacked.read(content)
        layer = LocalBlob(packed.descriptor(OCI_LAYER), index.path, byte_range.offset)
    else:
        layer = write_blob(deflated(unpacked.through(content)), target, OCI_LAYER)
    if unpacked.digest != diff_id:
        raise GKMError(
            Reason.DIGEST_MISMATCH,
            f"layer {name[:80]} in {index.path} unpacks to {unpacked.digest}, its configuration says {diff_id[:80]!r}",
        )
    return layer


def write(image: LocalImage, path: Path, ref: Reference, report: ProgressCallback = lambda _done, _of: None) -> None:
    """Write an image to the new docker archive `path`. Its manifest.json names the image by the tag of `ref`.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists, DIGEST_MISMATCH when a blob changed since it was packed.
        OSError: a disk operation failed; no file remains.
    """
    with all_or_nothing(path) as temporary:
        with temporary.open("xb") as file:
            file.writelines(_archive(image, ref, report))
        temporary.chmod(0o644)


def _archive(image: LocalImage, ref: Reference, report: ProgressCallback) -> Iterator[bytes]:
    config, *layers = image.blobs
    # Each layer is read twice, to measure it and to write it: each reading is reported as half of its bytes.
    count = ByteCounter(
        lambda done, of: report(done // 2, of // 2), 2 * sum(blob.descriptor.size for blob in image.blobs)
    )
    names = []
    for layer in layers:
        unpacked = _measured(layer, count)
        names.append(f"{unpacked.digest.removeprefix('sha256:')}.tar")
        yield from _member(names[-1], unpacked, inflated(count.through(layer.pieces())))
    config_name = f"{config.descriptor.digest.removeprefix('sha256:')}.json"
    yield from _member(config_name, config.descriptor, config.pieces())
    count.add(2 * config.descriptor.size)
    tags = [f"{ref.name}:{ref.tag}"] if ref.tag else None
    listing = msgspec.json.encode([{"Config": config_name, "RepoTags": tags, "Layers": names}])
    yield from _member(MANIFEST, LocalBlob.from_bytes(listing, "").descriptor, [listing])
    yield bytes(2 * BLOCK)


def _measured(layer: LocalBlob, count: ByteCounter) -> Descriptor:
    """Return the size and the digest of an unpacked layer: a tar states the size before the content."""
    packed, unpacked = StreamHasher(), StreamHasher()
    unpacked.read(inflated(packed.through(count.through(layer.pieces()))))
    check_blob(packed.descriptor(), layer.descriptor, "the image")
    return unpacked.descriptor()


def _member(name: str, content: Descriptor, parts: Iterable[bytes]) -> Iterator[bytes]:
    member = tarfile.TarInfo(name)
    member.size, member.mode = content.size, 0o444
    yield member.tobuf(tarfile.PAX_FORMAT)
    written = StreamHasher()
    yield from written.through(parts)
    if written.descriptor().digest != content.digest:
        raise GKMError(Reason.DIGEST_MISMATCH, f"{name} changed while it was written")
    yield bytes(-content.size % BLOCK)
