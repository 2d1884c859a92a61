"""OCI image layouts (image-spec 1.1, "Image Layout") with one image: written whole or not at all, every digest checked.

A layout may hold signatures and other artifacts beside its image. oras lists referrers in the index. regctl names an
index of referrers `sha256-<hex>` and cosign's tags `sha256-<hex>.sig`, as in a registry. `cosign save` annotates these.

Reading follows no link: a layout may come from a stranger, and GKM reads its files with its own permissions.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images.configuration import MAX_CONFIG_BYTES, read_config
from gkm.images.local_image import (
    PIECE_BYTES,
    AttachedArtifact,
    ByteCounter,
    LocalBlob,
    LocalImage,
    ProgressCallback,
    StreamHasher,
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

LAYOUT_FILE, INDEX_FILE = "oci-layout", "index.json"
MAX_LAYOUT_FILE_BYTES = 4096
MAX_ATTACHED = 64
"""Artifacts beside an image; verification reads no more signatures."""
MAX_ATTACHED_MANIFEST_BYTES = 1 << 20
_REF_NAME, _FULL_NAME = "org.opencontainers.image.ref.name", "io.containerd.image.name"
_BLOBS = ("blobs", "sha256")
_TAG_OF_DIGEST = re.compile(r"sha256-([0-9a-f]{64})(|\.sig|\.att|\.sbom)", re.ASCII)
_COSIGN_KINDS = {"dev.cosignproject.cosign/sigs": ".sig", "dev.cosignproject.cosign/atts": ".att"}


class _LayoutFile(Struct):
    version: str = field(name="imageLayoutVersion")


def write(image: LocalImage, path: Path, ref: Reference, report: ProgressCallback = lambda _done, _of: None) -> None:
    """Write a layout to `path`, which must not exist. Its index names the image by the tag of `ref`.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists, DIGEST_MISMATCH when a blob changed since it was packed.
        OSError: the disk refused; no file remains.
    """
    with all_or_nothing(path) as temporary:
        blobs = temporary.joinpath(*_BLOBS)
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
    """Return the one image in a layout with the artifacts beside it, every size and digest checked.

    The first `elsewhere` layers are in a registry, not in the layout.

    Raises:
        GKMError: METADATA_MISSING when it is no layout, METADATA_INVALID, TOO_LARGE, UNSAFE_CONTENT, DIGEST_MISMATCH.
        OSError: it cannot be read.
    """
    version = decode(
        _read_small(path, (LAYOUT_FILE,), MAX_LAYOUT_FILE_BYTES), _LayoutFile, str(path / LAYOUT_FILE)
    ).version
    if version.partition(".")[0] != "1":
        raise GKMError(Reason.METADATA_INVALID, f"{path} is a layout of version {version[:20]!r}; 1 is understood")
    index = decode(_read_small(path, (INDEX_FILE,), MAX_MANIFEST_BYTES), ImageIndex, str(path / INDEX_FILE))
    images, attached = _images_and_artifacts(path, _listed(path, index))
    listed = _single_image(images, path)
    manifest = Manifest.from_bytes(_blob(path, listed, MAX_MANIFEST_BYTES), listed.media_type)
    described = manifest.image()
    config = _blob(path, described.config, MAX_CONFIG_BYTES)
    labels = read_config(config, str(path)).labels
    blobs = LocalBlob(described.config, config), *_checked_blobs(path, described.layers[elsewhere:])
    return LocalImage(manifest.raw, manifest.media_type, blobs, labels, _behind_subjects(path, listed.digest, attached))


@contextmanager
def all_or_nothing(path: Path) -> Iterator[Path]:
    """Yield a new path on the same file system; what the block writes there gets the name `path` when the block ends.

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
    names = {_REF_NAME: ref.tag, _FULL_NAME: f"{ref.name}:{ref.tag}"} if ref.tag else {}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [{**manifest.to_json(), "annotations": names}]}
    return msgspec.json.encode(index)


def _listed(root: Path, index: ImageIndex) -> list[Descriptor]:
    """Return the manifests of a layout: those in its index, and those in an index of referrers there.

    Raises:
        GKMError: TOO_LARGE for more than one image and MAX_ATTACHED artifacts.
    """
    listed: list[Descriptor] = []
    for each in index.manifests or []:
        if each.media_type == OCI_INDEX and _TAG_OF_DIGEST.fullmatch(each.annotations.get(_REF_NAME, "")):
            raw = _blob(root, each, MAX_ATTACHED_MANIFEST_BYTES)
            listed += Manifest.from_bytes(raw, OCI_INDEX).index().manifests or []
        else:
            listed.append(each)
    if len(listed) > 1 + MAX_ATTACHED:
        raise GKMError(
            Reason.TOO_LARGE,
            f"{root} holds {len(listed)} manifests; one image and {MAX_ATTACHED} artifacts beside it are read",
            "copy one image to a separate layout",
        )
    return listed


def _images_and_artifacts(
    root: Path, listed: Iterable[Descriptor]
) -> tuple[list[Descriptor], dict[tuple[str, str], AttachedArtifact]]:
    """Return the images among the manifests of a layout, and the artifacts by digest and suffix."""
    images: list[Descriptor] = []
    attached: dict[tuple[str, str], AttachedArtifact] = {}
    for each in listed:
        artifact = _artifact(root, each) if each.media_type in (OCI_MANIFEST, DOCKER_MANIFEST) else None
        if artifact is None:
            images.append(each)
        else:
            attached[each.digest, artifact.suffix] = artifact
    return images, attached


def _artifact(root: Path, listed: Descriptor) -> AttachedArtifact | None:
    """Return the artifact in a layout that a descriptor names; None if it is an image."""
    tag = _TAG_OF_DIGEST.fullmatch(listed.annotations.get(_REF_NAME, ""))
    suffix = tag[2] if tag else _COSIGN_KINDS.get(listed.annotations.get("kind", ""), "")
    manifest = Manifest.from_bytes(_blob(root, listed, MAX_MANIFEST_BYTES), listed.media_type)
    described = manifest.image()
    if suffix:
        subject = f"sha256:{tag[1]}" if tag else ""
    elif described.subject:
        subject = described.subject.digest
    else:
        return None
    if len(manifest.raw) > MAX_ATTACHED_MANIFEST_BYTES:
        raise GKMError(
            Reason.TOO_LARGE, f"artifact {manifest.digest} in {root} has a manifest of {len(manifest.raw)} bytes"
        )
    blobs = _checked_blobs(root, [described.config, *described.layers])
    return AttachedArtifact(LocalImage(manifest.raw, manifest.media_type, blobs, {}), subject, suffix)


def _behind_subjects(
    root: Path, image: str, attached: Mapping[tuple[str, str], AttachedArtifact]
) -> tuple[AttachedArtifact, ...]:
    """Return the artifacts in an order in which each follows its subject; a signature can be about another artifact."""
    known, ordered = {image}, []
    rest = [each if each.subject else replace(each, subject=image) for each in attached.values()]
    while rest:
        fitting = [each for each in rest if each.subject in known]
        if not fitting:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"{root} holds {count_of(len(rest), 'artifact')} about another image than {image}",
                "copy the image to a separate layout",
            )
        ordered += fitting
        rest = [each for each in rest if each.subject not in known]
        known.update(each.content.digest for each in fitting)
    return tuple(ordered)


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


def _blob(root: Path, descriptor: Descriptor, limit: int) -> bytes:
    raw = _read_small(root, (*_BLOBS, descriptor.digest.removeprefix("sha256:")), limit)
    check_blob(LocalBlob.from_bytes(raw, "").descriptor, descriptor, str(root))
    return raw


def _checked_blobs(root: Path, descriptors: Iterable[Descriptor]) -> tuple[LocalBlob, ...]:
    return tuple(LocalBlob(each, _checked(root, each)) for each in descriptors)


def _checked(root: Path, descriptor: Descriptor) -> Path:
    """Return the file of a blob after checking its size and digest."""
    parts = (*_BLOBS, descriptor.digest.removeprefix("sha256:"))
    hasher = StreamHasher()
    with os.fdopen(_open_file(root, parts), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size == descriptor.size:  # a layer of another size is not worth reading
            hasher.read(iter(partial(file.read, PIECE_BYTES), b""))
    check_blob(Descriptor("", hasher.digest, size), descriptor, str(root))
    return root.joinpath(*parts)


def _read_small(root: Path, parts: tuple[str, ...], limit: int) -> bytes:
    """Return the content of the file at `parts` below `root`.

    Raises:
        GKMError: TOO_LARGE beyond `limit` bytes; as `_open_file`.
        OSError: it cannot be read.
    """
    with os.fdopen(_open_file(root, parts), "rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise GKMError(Reason.TOO_LARGE, f"{root.joinpath(*parts)} has more than {limit} bytes")
    return raw


def _open_file(root: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of the regular file at `parts` below `root`; follows no link and does not block on a pipe.

    Raises:
        GKMError: METADATA_MISSING for a missing file, UNSAFE_CONTENT for anything but a plain file in plain
        directories.
        OSError: `root` is no directory.
    """
    path = root.joinpath(*parts)
    # The user named `root`, so `root` itself may be a link.
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            parent, descriptor = descriptor, os.open(part, flags, dir_fd=descriptor)
            os.close(parent)
    except FileNotFoundError as error:
        os.close(descriptor)
        raise GKMError(Reason.METADATA_MISSING, f"{path} is missing: the layout is not complete") from error
    except OSError as error:
        os.close(descriptor)
        raise GKMError(Reason.UNSAFE_CONTENT, f"{path} cannot be used: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GKMError(Reason.UNSAFE_CONTENT, f"{path} is not a plain file")
    return descriptor
