"""Kernels from Triton's own metadata, and their entries in MCV's manifest.

Manifest, labels and dummy_key equal the same parts of an image that MCV built, byte for byte (tests/data/mcv).
"""

import hashlib
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gkm.api.targets import GpuTarget
from gkm.images.assembly.go_json import marshal
from gkm.images.assembly.tree import TreeEntry
from gkm.images.cache import is_valid_target
from gkm.runtimes.triton import GROUP

MAX_METADATA_BYTES = 4 << 20
UNKNOWN_TRITON_KEY = "unknown-triton-key"
"""MCV's value when Triton is not installed. GKM always uses it, because Triton's answer depends on the machine."""

_Hash = Annotated[str, Meta(max_length=256)]
_Word = Annotated[str, Meta(max_length=32)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,31}", re.ASCII)


class _Target(Struct):
    backend: _Word
    arch: _Word | _Count
    warp_size: _Count


class Kernel(Struct):
    """A Triton kernel as its metadata describes it, reduced to the fields of MCV's manifest."""

    target: _Target
    hash: _Hash = ""
    num_stages: _Count | None = None
    num_warps: _Count | None = None
    ptx_version: _Count | None = None
    debug: bool | None = None

    @property
    def gpu_target(self) -> GpuTarget:
        """Return the GPU that the kernel was compiled for."""
        return GpuTarget(self.target.backend, str(self.target.arch), self.target.warp_size)


def parse_kernel(entry: TreeEntry) -> Kernel | None:
    """Return the Triton kernel that a metadata file describes; None for any other file.

    Raises:
        GKMError: CONTENT_MISMATCH when it changed while it was read.
        OSError: it cannot be read.
    """
    if entry.directory or not entry.name.endswith(".json") or entry.name.startswith(GROUP):
        return None
    if entry.size > MAX_METADATA_BYTES:
        return None
    try:
        kernel = msgspec.json.decode(entry.read(), type=Kernel)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return kernel if kernel.hash and is_valid_target(kernel.gpu_target) else None


class KernelVersion(Struct):
    """The version in Triton's metadata; typed, so that a foreign value of another type is refused unread."""

    triton_version: str = ""


def version_in(metadata: bytes) -> str:
    """Return the version of Triton in a kernel's metadata; "" if the metadata has no version."""
    try:
        version = msgspec.json.decode(metadata, type=KernelVersion).triton_version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return version if _VERSION.fullmatch(version) else ""


def manifest_entry(kernel: Kernel) -> dict[str, Any]:
    """Return a Triton kernel's entry in MCV's manifest: fields in MCV's order, without zero values."""
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


def _dummy_key(kernel: Kernel) -> str:
    """Return MCV's replacement of Triton's key, as MCV computes it without Triton."""
    options = {
        "debug": bool(kernel.debug),
        "num_stages": kernel.num_stages or 0,
        "num_warps": kernel.num_warps or 0,
        "ptx": kernel.ptx_version or 0,
    }
    target = f"{kernel.target.backend}-{kernel.target.arch}-{kernel.target.warp_size}"
    parts = ("dummy_source_content", target, marshal(options), "{}")
    text = "-".join([UNKNOWN_TRITON_KEY, *(hashlib.sha256(part.encode()).hexdigest() for part in parts)])
    return hashlib.sha256(text.encode()).hexdigest()
