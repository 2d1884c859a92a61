"""Archives for tests of images: tars with any names and types, as attackers write them, and MCV's image."""

import io
import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from gkm.images.archives.docker_archive import open_archive
from gkm.images.configuration import OCI_CONFIG, OCI_LAYER
from gkm.images.local_image import LocalBlob, LocalImage
from gkm.images.manifest import OCI_MANIFEST
from support.images.builds import build

DATA = Path(__file__).parents[2] / "data"
MCV_ARCHIVE = DATA / "mcv" / "mcv-built-vector-add-cache-rocm.docker-archive.tar"
Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes, *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size = kind, mode, len(data)
    return info, data


def tree(*members: Member | tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            info, data = member if isinstance(member[0], tarfile.TarInfo) else file(member[0], member[1])
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def packed(*layers: bytes, config: bytes = b"{}", media_type: str = OCI_MANIFEST, kind: str = OCI_LAYER) -> LocalImage:
    """Return an image in memory with exactly these layers."""
    blobs = [LocalBlob.from_bytes(config, OCI_CONFIG), *(LocalBlob.from_bytes(layer, kind) for layer in layers)]
    stated = [
        {"mediaType": blob.descriptor.media_type, "size": blob.descriptor.size, "digest": blob.descriptor.digest}
        for blob in blobs
    ]
    manifest = {"schemaVersion": 2, "mediaType": media_type, "config": stated[0], "layers": stated[1:]}
    return LocalImage(json.dumps(manifest).encode(), media_type, tuple(blobs), {})


def image_of_layers(*layers: bytes, labels: dict[str, str] | None = None) -> LocalImage:
    """Return an image of any layers, with valid labels."""
    summary = json.dumps({"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]})
    stated = {"config": {"Labels": {"cache.triton.image/summary": summary} | (labels or {})}}
    return packed(*layers, config=json.dumps(stated).encode())


def cache_image(title: str = "vector-add", directory: Path = DATA / "triton-cache") -> LocalImage:
    """Return the image of a real cache, in memory."""
    with tempfile.TemporaryDirectory() as work:
        return in_memory(build(directory, title, Path(work)))


def mcv_image() -> LocalImage:
    """Return MCV's image as `gkm cache push` stores it: the archive's layer is a plain tar, which it compresses."""
    with tempfile.TemporaryDirectory() as work:
        return in_memory(open_archive(MCV_ARCHIVE, Path(work)))


def in_memory(image: LocalImage) -> LocalImage:
    """Return the same image without its layer files on disk."""
    return replace(image, blobs=tuple(replace(blob, source=content(blob), offset=0) for blob in image.blobs))


def content(blob: LocalBlob) -> bytes:
    return b"".join(blob.pieces())


def blob_of(image: LocalImage, digest: str) -> bytes:
    (found,) = (blob for blob in image.blobs if blob.descriptor.digest == digest)
    return content(found)
