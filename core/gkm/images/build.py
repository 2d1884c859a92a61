"""Packing a Triton cache directory as an image that MCV and its readers understand.

Format: prior-art/gkm-02-mcv-image-format.md. Unlike MCV's, the layer is reproducible: same files, same digest.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gkm.api.errors import GKMError, Reason
from gkm.images import push as pushing
from gkm.images.cache import Format, Target
from gkm.images.manifest import DOCKER_MANIFEST
from gkm.images.packed import PackedBlob, PackedImage
from gkm.images.reference import Reference
from gkm.images.registry import Registry

DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
MAX_METADATA_BYTES = 4 << 20
UNKNOWN_TRITON_KEY = "unknown-triton-key"
"""What MCV writes where Triton cannot be asked."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image in memory: `blobs` by digest, and the manifest that names them."""

    manifest: bytes
    media_type: str
    blobs: dict[str, bytes]
    labels: dict[str, str]

    @property
    def digest(self) -> str:
        """Return the digest of the manifest."""
        return _digest(self.manifest)


class _KernelTarget(Struct):
    backend: str
    arch: str | int
    warp_size: int


class _Kernel(Struct):
    """The metadata that Triton keeps for a kernel; the fields that MCV's manifest repeats."""

    target: _KernelTarget
    hash: str = ""
    num_stages: int = 0
    num_warps: int = 0
    ptx_version: int | None = None
    debug: bool = False


def build_triton(directory: Path, title: str) -> BuiltImage:
    """Return the image of a Triton cache directory; `title` is the repository's base name.

    Raises:
        GKMError: METADATA_MISSING when no kernel is in it, UNSAFE_CONTENT when it holds links or devices.
        OSError: it cannot be read.
    """
    kernels = [kernel for path in sorted(directory.rglob("*.json")) if (kernel := _kernel(path)) is not None]
    if not kernels:
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds no Triton kernel",
            "name the directory that TRITON_CACHE_DIR pointed to while the kernels were compiled",
        )
    manifest = json.dumps({"triton": [_manifest_entry(kernel) for kernel in kernels]}, indent=2).encode()
    layer, size = _layer(directory, manifest)
    labels = {
        Format.TRITON.size_label: str(size),
        Format.TRITON.count_label: str(len(kernels)),
        Format.TRITON.summary_label: _summary(kernels),
        "org.opencontainers.image.title": title,
    }
    return _image(layer, labels)


def push(registry: Registry, ref: Reference, image: BuiltImage) -> str:
    """Store the image under the reference and return its digest.

    Raises:
        GKMError: what the registry raises.
    """
    blobs = tuple(PackedBlob.of(data, "") for data in image.blobs.values())
    return pushing.image(registry, ref, PackedImage(image.manifest, image.media_type, blobs, image.labels))


def _kernel(path: Path) -> _Kernel | None:
    if path.name.startswith("__grp__") or path.stat().st_size > MAX_METADATA_BYTES:
        return None
    try:
        kernel = msgspec.json.decode(path.read_bytes(), type=_Kernel)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return kernel if kernel.hash else None


def _manifest_entry(kernel: _Kernel) -> dict[str, Any]:
    optional = {
        "ptx_version": kernel.ptx_version,
        "num_stages": kernel.num_stages,
        "num_warps": kernel.num_warps,
        "debug": kernel.debug,
    }
    return {
        "hash": kernel.hash,
        "dummy_key": _dummy_key(kernel),
        **{key: value for key, value in optional.items() if value},
        "backend": kernel.target.backend,
        "arch": str(kernel.target.arch),
        "warp_size": kernel.target.warp_size,
    }


def _dummy_key(kernel: _Kernel) -> str:
    """Return MCV's stand-in for Triton's own key, as MCV computes it without Triton at hand."""
    target = f"{kernel.target.backend}-{kernel.target.arch}-{kernel.target.warp_size}"
    options = {
        "debug": kernel.debug,
        "num_stages": kernel.num_stages,
        "num_warps": kernel.num_warps,
        "ptx": kernel.ptx_version or 0,
    }
    parts = ("dummy_source_content", target, json.dumps(options, separators=(",", ":"), sort_keys=True), "{}")
    text = "-".join([UNKNOWN_TRITON_KEY, *(hashlib.sha256(part.encode()).hexdigest() for part in parts)])
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(kernels: list[_Kernel]) -> str:
    targets = sorted({Target(k.target.backend, str(k.target.arch), k.target.warp_size) for k in kernels})
    stated = [{"backend": t.backend, "arch": t.arch, "warp_size": t.warp_size} for t in targets]
    return json.dumps({"targets": stated}, separators=(",", ":"))


def _layer(directory: Path, manifest: bytes) -> tuple[bytes, int]:
    """Return the tar of cache and manifest, and the bytes of the cache's files."""
    buffer = io.BytesIO()
    size = 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(directory):
            name = f"{Format.TRITON.content_directory}/{path.relative_to(directory)}"
            if path.is_dir():
                _add(archive, name + "/", None)
            else:
                data = path.read_bytes()
                size += len(data)
                _add(archive, name, data, executable=bool(path.stat().st_mode & 0o100))
        _add(archive, Format.TRITON.manifest_path.rpartition("/")[0] + "/", None)
        _add(archive, Format.TRITON.manifest_path, manifest)
    return buffer.getvalue(), size


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise GKMError(Reason.UNSAFE_CONTENT, f"{path} is neither a file nor a directory", "remove it")
        yield path


def _add(archive: tarfile.TarFile, name: str, data: bytes | None, *, executable: bool = False) -> None:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    member.mode = 0o755 if data is None or executable else 0o644
    member.size = len(data or b"")
    archive.addfile(member, io.BytesIO(data or b""))


def _image(layer: bytes, labels: dict[str, str]) -> BuiltImage:
    compressed = gzip.compress(layer, compresslevel=6, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created_by": "gkm"}],
        },
        separators=(",", ":"),
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": {"mediaType": DOCKER_CONFIG, "size": len(config), "digest": _digest(config)},
            "layers": [{"mediaType": DOCKER_LAYER, "size": len(compressed), "digest": _digest(compressed)}],
        },
        separators=(",", ":"),
    ).encode()
    return BuiltImage(manifest, DOCKER_MANIFEST, {_digest(compressed): compressed, _digest(config): config}, labels)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
