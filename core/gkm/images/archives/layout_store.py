"""An OCI layout as a place for images: tags are names in its index, and every digest is checked as it is read.

Referrers are the manifests in the index with this subject, as oras lists them, and those in an index that is named
`sha256-<hex>`, as regctl lists them. cosign's tags are names, as regctl writes them, or marked, as `cosign save` does.

A write takes a lock, makes a whole file and renames it, so a process that ends at any instruction leaves a layout that
readers accept, and the same command completes it.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import files
from gkm.images.archives.layout_files import (
    BLOBS,
    INDEX_FILE,
    LAYOUT_FILE,
    blob_parts,
    checked,
    open_file,
    read_small,
    small_blob,
)
from gkm.images.archives.local_source import LocalSource
from gkm.images.archives.oci_layout import REF_NAME, read_index
from gkm.images.local_image import PIECE_BYTES, ByteCounter, LocalBlob, StreamHasher, check_blob, wrong_blob
from gkm.images.manifest import (
    ACCEPTED_MEDIA_TYPES,
    MAX_MANIFEST_BYTES,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    decode,
    parse_referrers,
)
from gkm.images.reference import Reference

MAX_LISTED = 4_096
"""Limit of manifests in the index of a layout."""
MAX_READ_BYTES = 32 << 20
"""Limit of the total size in bytes of the manifests that a search for referrers reads."""
MAX_REFERRERS_BYTES = 1 << 20
"""Limit of the size in bytes of an image's index of referrers."""
_TAG_OF_DIGEST = re.compile(r"sha256-([0-9a-f]{64})(|\.sig|\.att|\.sbom)", re.ASCII)
_COSIGN_KINDS = {"dev.cosignproject.cosign/sigs": ".sig", "dev.cosignproject.cosign/atts": ".att"}
_COSIGN_IMAGES = frozenset({"dev.cosignproject.cosign/image", "dev.cosignproject.cosign/imageIndex"})


class _Stated(Struct, rename="camel"):
    media_type: str = ""
    manifests: list[Any] | None = None


class LayoutStore(LocalSource):
    """The images in one OCI layout, as a store; it need not exist before the first write. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def manifest(self, ref: Reference, limit: int = MAX_MANIFEST_BYTES) -> Manifest:
        """Return the manifest that a reference names, by digest or tag in the layout's index (ImageSource.manifest)."""
        listed = self._listed()
        if not ref.digest:
            return self._read(self._named(ref, listed), limit)
        found = next((each for each in listed if each.digest == ref.digest), None)
        return self._read(found, limit) if found else self._unlisted(ref, ref.digest, limit)

    def pieces(self, ref: Reference, descriptor: Descriptor) -> Iterator[bytes]:
        """Yield the bytes of a blob in the layout; raise GKMError if its size is wrong."""
        with os.fdopen(open_file(self._root, blob_parts(descriptor.digest)), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != descriptor.size:
                raise wrong_blob(ref.name, descriptor, f"{size} bytes long, its manifest says {descriptor.size}")
            left = size
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                left -= len(piece)
                yield piece

    def referrers(self, ref: Reference) -> list[Descriptor]:
        """Return the descriptors of the layout's manifests about a pinned image (ImageSource.referrers)."""
        found: dict[str, Descriptor] = {}
        left = MAX_READ_BYTES
        for each in self._listed():
            name = each.annotations.get(REF_NAME, "")
            if each.media_type == OCI_INDEX and name == ref.tag_of_digest().tag:
                raw = self._read(each, MAX_REFERRERS_BYTES).raw
                found |= {entry.digest: entry for entry in parse_referrers(raw, str(ref))}
            elif each.media_type in ACCEPTED_MEDIA_TYPES:
                left -= each.size
                if left < 0:
                    what = f"{self._root} has over {MAX_READ_BYTES} bytes of manifests: too many to find signatures"
                    raise GKMError(Reason.TOO_LARGE, what, "write each image to a separate layout")
                subject, referrer = self._read(each, MAX_MANIFEST_BYTES).attached()
                found |= {each.digest: referrer} if subject == ref.target else {}
        return list(found.values())

    def tags(self, ref: Reference, limit: int) -> list[str]:  # noqa: ARG002 -- see ImageStore
        """Return the tags in the layout's index, at most `limit`."""
        names = (each.annotations.get(REF_NAME, "") for each in self._listed())
        return sorted({name for name in names if name})[:limit]

    def blob_exists(self, ref: Reference, descriptor: Descriptor) -> bool:  # noqa: ARG002 -- see ImageStore
        """Return whether the layout has the whole blob; an interrupted write may have left a part of it."""
        if not self._root.joinpath(*blob_parts(descriptor.digest)).exists():
            return False
        try:
            return bool(checked(self._root, descriptor))
        except GKMError as error:
            if error.reason is Reason.DIGEST_MISMATCH:
                return False
            raise

    def mount_blob(self, ref: Reference, descriptor: Descriptor, source: Reference) -> bool:  # noqa: ARG002 -- see there
        """Return False, so that the caller stores the blob: all tags of a layout share its blobs."""
        return False

    def store_blob(self, ref: Reference, blob: LocalBlob, counter: ByteCounter) -> None:
        """Write a blob to the layout and report the bytes to `counter` (ImageStore.store_blob)."""
        digest = blob.descriptor.digest.removeprefix("sha256:")
        with self._locked():
            temporary = self._root.joinpath(*BLOBS, f".{digest}.part")
            # A run that was cut off leaves this file, and the next run writes the same one.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            hasher = StreamHasher()
            with os.fdopen(os.open(temporary, flags, 0o644), "wb") as file:
                file.writelines(hasher.through(counter.through(blob.pieces())))
            check_blob(hasher.descriptor(), blob.descriptor, ref.name)
            temporary.replace(temporary.with_name(digest))

    def store_manifest(self, ref: Reference, raw: bytes, media_type: str) -> bool:
        """Store a manifest in the layout under a tag or digest; return whether it is listed as a referrer.

        A manifest by digest is listed in the index only if it has a subject: the tag of an image is written last.
        """
        blob = LocalBlob.from_bytes(raw, media_type)
        self.store_blob(ref, blob, ByteCounter(lambda _done, _of: None, len(raw)))
        subject, _ = Manifest.from_bytes(raw, media_type).attached()
        if not ref.digest or subject:
            with self._locked():
                self._list(blob.descriptor, ref.tag)
        return bool(subject)

    def _list(self, listed: Descriptor, tag: str | None) -> None:
        """Add a manifest to the index: under its tag, which named another one before, or without a name."""
        index = decode(read_small(self._root, (INDEX_FILE,), MAX_MANIFEST_BYTES), dict[str, Any], f"{self._root}")
        entries = msgspec.convert(index.get("manifests") or [], list[dict[str, Any]])
        if tag is None and any(each.get("digest") == listed.digest for each in entries):
            return
        names = {REF_NAME: tag} if tag else {}
        kept = [each for each in entries if not (tag and _replaces(each, listed.digest, tag))]
        index["manifests"] = [*kept, {**listed.to_json(), "annotations": names}]
        self._check_count(len(index["manifests"]))
        files.replace(self._root / INDEX_FILE, msgspec.json.encode(index), durable=False)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other writers out; make the layout if it does not exist."""
        directory = self._root
        directory.mkdir(exist_ok=True)
        for part in BLOBS:
            directory /= part
            directory.mkdir(exist_ok=True)
            if directory.is_symlink():
                raise GKMError(Reason.UNSAFE_CONTENT, f"{directory} is a link: the layout leads elsewhere")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._root / LAYOUT_FILE, flags, 0o644)
        with files.closing(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not os.fstat(descriptor).st_size:
                os.write(descriptor, b'{"imageLayoutVersion":"1.0.0"}')
            if not os.path.lexists(self._root / INDEX_FILE):
                empty = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
                files.replace(self._root / INDEX_FILE, msgspec.json.encode(empty), durable=False)
            yield

    def _listed(self) -> list[Descriptor]:
        if not self._root.is_dir():
            raise GKMError(Reason.NOT_FOUND, f"{self._root} is no layout: there is no such directory")
        listed = read_index(self._root).manifests or []
        self._check_count(len(listed))
        return listed

    def _check_count(self, count: int) -> None:
        if count > MAX_LISTED:
            what = f"the index of {self._root} lists {count} manifests, at most {MAX_LISTED} are read"
            raise GKMError(Reason.TOO_LARGE, what, "write each image to a separate layout")

    def _named(self, ref: Reference, listed: list[Descriptor]) -> Descriptor:
        """Return the manifest with the tag of `ref`; without a tag, the only image."""
        tag = ref.tag
        fitting = _saved_by_cosign(tag, listed) if tag else [each for each in listed if self._is_image(each)]
        if tag and not fitting:
            fitting = [each for each in listed if each.annotations.get(REF_NAME) == tag]
        different = {each.digest: each for each in fitting}
        if len(different) == 1:
            return next(iter(different.values()))
        if tag and not different:
            raise GKMError(Reason.NOT_FOUND, f"{ref} does not exist", f"list the tags: gkm cache tags {ref.name}")
        what = f"{ref} names {len(different)} images, not one"
        raise GKMError(Reason.METADATA_INVALID, what, f"name one by its tag: gkm cache tags {ref.name}")

    def _is_image(self, listed: Descriptor) -> bool:
        tag = _TAG_OF_DIGEST.fullmatch(listed.annotations.get(REF_NAME, ""))
        if tag and (tag[2] or listed.media_type == OCI_INDEX):  # `cosign copy` names an image by its digest
            return False
        if listed.annotations.get("kind", "") in _COSIGN_KINDS:
            return False
        return listed.media_type not in ACCEPTED_MEDIA_TYPES or not self._read(listed, MAX_MANIFEST_BYTES).attached()[0]

    def _read(self, listed: Descriptor, limit: int) -> Manifest:
        return Manifest(small_blob(self._root, listed, limit), listed.media_type, listed.digest)

    def _unlisted(self, ref: Reference, digest: str, limit: int) -> Manifest:
        """Return a manifest that another one names: an image of an index, or a referrer."""
        if not self._root.joinpath(*blob_parts(digest)).exists():
            raise GKMError(Reason.NOT_FOUND, f"{ref} does not exist: the layout has no such blob")
        raw = read_small(self._root, blob_parts(digest), limit)
        check_blob(LocalBlob.from_bytes(raw, "").descriptor, Descriptor("", digest, len(raw)), ref.name)
        stated = decode(raw, _Stated, f"manifest {digest}")
        kind = stated.media_type or (OCI_MANIFEST if stated.manifests is None else OCI_INDEX)
        return Manifest(raw, kind, digest)


def _saved_by_cosign(tag: str, listed: list[Descriptor]) -> list[Descriptor]:
    """Return the manifest that `cosign save` marks as the content of a tag of signatures of the image that it marks."""
    of_digest = _TAG_OF_DIGEST.fullmatch(tag)
    images = {each.digest for each in listed if each.annotations.get("kind") in _COSIGN_IMAGES}
    if not of_digest or f"sha256:{of_digest[1]}" not in images:
        return []
    return [each for each in listed if _COSIGN_KINDS.get(each.annotations.get("kind", "")) == of_digest[2]]


def _replaces(entry: dict[str, Any], digest: str, tag: str) -> bool:
    """Return whether a new entry with this tag takes the place of `entry`: it had the tag, or had no name."""
    annotations = entry.get("annotations") or {}
    name = annotations.get(REF_NAME) if isinstance(annotations, dict) else None
    return name == tag or (entry.get("digest") == digest and not annotations)
