"""Archives for tests of images: tars of any name and type, as an attacker writes them, and the image that MCV built."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from gkm.images.build import BuiltImage
from gkm.images.manifest import DOCKER_MANIFEST, OCI_MANIFEST

DATA = Path(__file__).parent / "data"
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


def image_of_layers(*layers: bytes, labels: dict[str, str] | None = None) -> BuiltImage:
    """An image around any layers, with labels that pass."""
    summary = json.dumps({"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]})
    config = json.dumps({"config": {"Labels": {"cache.triton.image/summary": summary} | (labels or {})}}).encode()

    def described(blob: bytes, kind: str) -> dict[str, object]:
        return {"mediaType": kind, "size": len(blob), "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}"}

    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [described(layer, "application/vnd.oci.image.layer.v1.tar+gzip") for layer in layers],
    }
    blobs = {f"sha256:{hashlib.sha256(blob).hexdigest()}": blob for blob in (*layers, config)}
    return BuiltImage(json.dumps(manifest).encode(), OCI_MANIFEST, blobs, {})


def mcv_image() -> BuiltImage:
    """The image that MCV built, as `docker push` would send it: the archive's layer is a plain tar."""
    with tarfile.open(DATA / "mcv" / "mcv-built-vector-add-cache-rocm.docker-archive.tar") as archive:
        (listed,) = json.loads(_read(archive, "manifest.json"))
        config, layer = _read(archive, listed["Config"]), _read(archive, listed["Layers"][0])
    digest = {name: f"sha256:{name.split('.')[0]}" for name in (listed["Config"], listed["Layers"][0])}
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config),
            "digest": digest[listed["Config"]],
        },
        "layers": [
            {
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar",
                "size": len(layer),
                "digest": digest[listed["Layers"][0]],
            }
        ],
    }
    blobs = {digest[listed["Config"]]: config, digest[listed["Layers"][0]]: layer}
    return BuiltImage(json.dumps(manifest).encode(), DOCKER_MANIFEST, blobs, {})


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()
