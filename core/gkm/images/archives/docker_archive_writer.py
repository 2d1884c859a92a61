"""Write an image as `docker save` does: layers as plain tars that are named by their digests. All or nothing."""

import json
import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archives.archive import BLOCK
from gkm.images.archives.docker_archive import MANIFEST
from gkm.images.archives.inflate import inflated
from gkm.images.archives.oci_layout import refuse_existing
from gkm.images.local_image import (
    ByteCounter,
    LocalBlob,
    LocalImage,
    ProgressCallback,
    StreamHasher,
    counted,
    write_all,
)
from gkm.images.reference import Reference


def write(image: LocalImage, path: Path, ref: Reference, report: ProgressCallback = lambda _done, _of: None) -> None:
    """Write the image to the new file `path`. Its manifest.json names the image by the tag of `ref`.

    Raises:
        GKMError: NOT_ALLOWED when `path` exists, DIGEST_MISMATCH when a blob changed since it was packed.
        OSError: the disk refused; no file remains.
    """
    refuse_existing(path)
    config, *layers = image.blobs
    # Each layer is read twice, to measure it and to write it: each reading counts as half of its bytes.
    count = ByteCounter(
        lambda done, of: report(done // 2, of // 2), 2 * sum(blob.descriptor.size for blob in image.blobs)
    )
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.absolute().parent)
    temporary = Path(name)
    try:
        names = [_layer(descriptor, layer, count) for layer in layers]
        config_name = f"{config.descriptor.digest.removeprefix('sha256:')}.json"
        _member(descriptor, config_name, config.descriptor.size, config.pieces())
        count.add(2 * config.descriptor.size)
        tags = [f"{ref.name}:{ref.tag}"] if ref.tag else None
        listing = json.dumps([{"Config": config_name, "RepoTags": tags, "Layers": names}], separators=(",", ":"))
        _member(descriptor, MANIFEST, len(listing), [listing.encode()])
        write_all(descriptor, bytes(2 * BLOCK))
        os.fchmod(descriptor, 0o644)
        temporary.rename(path)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def _layer(descriptor: int, layer: LocalBlob, count: ByteCounter) -> str:
    """Write a layer and return its name. The layer is read twice, because a tar states the size before the content."""
    packed, first, second = StreamHasher(), StreamHasher(), StreamHasher()
    for _ in first.through(inflated(packed.through(counted(layer.pieces(), count.add)))):
        pass
    name = f"{first.digest.removeprefix('sha256:')}.tar"
    _member(descriptor, name, first.size, second.through(inflated(counted(layer.pieces(), count.add))))
    if packed.digest != layer.descriptor.digest or first.digest != second.digest:
        raise GKMError(Reason.DIGEST_MISMATCH, f"layer {layer.descriptor.digest} changed since it was packed")
    return name


def _member(descriptor: int, name: str, size: int, parts: Iterable[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    write_all(descriptor, member.tobuf(tarfile.PAX_FORMAT))
    written = StreamHasher()
    for part in written.through(parts):
        write_all(descriptor, part)
    if written.size != size:
        raise GKMError(Reason.DIGEST_MISMATCH, f"{name} changed while it was written")
    write_all(descriptor, bytes(-size % BLOCK))
