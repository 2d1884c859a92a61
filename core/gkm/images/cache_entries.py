"""The entries of a cache, from the manifest in its content (MCV's format)."""

from dataclasses import dataclass

from msgspec import Struct, field

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode

MAX_ENTRIES = 200_000
"""Limit of entries in a cache; equal to the limit of files in a store entry."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One entry of a cache: a kernel or compiled artifact. Texts are claims of the image's author; "" without a claim.

    `form` is the storage format: "triton", or for vLLM "binary" or "aot_compile". For TorchInductor it is the cache
    that has the entry ("fxgraph", "aotautograd"), or the kind of an artifact in a file ("inductor", "aot_autograd"…).
    For the other runtimes it is the name of the runtime, and `hash` is the path.
    """

    form: str
    hash: str
    backend: str = ""
    arch: str = ""
    warp_size: int | None = None
    ptx_version: int | None = None
    dummy_key: str = ""


class _Kernel(Struct):
    hash: str = ""
    backend: str = ""
    arch: str | int = ""
    warp_size: int | None = None
    ptx_version: int | None = None
    dummy_key: str = ""


class _Binary(Struct):
    code_hash: str = ""
    target_device: str = ""


class _AheadOfTime(Struct):
    hash: str = ""


class _Inductor(_Kernel):
    form: str = ""


class _Graphs(Struct):
    """The artifacts that vLLM stores under one hash."""

    hash: str = field(default="", name="vllmHash")
    triton: list[_Kernel] = field(default_factory=list)
    binary: list[_Binary] = field(default_factory=list)
    aot: list[_AheadOfTime] = field(default_factory=list, name="aot_compile")
    inductor: list[_Inductor] = field(default_factory=list)


class _Manifest(Struct):
    triton: list[_Kernel] | None = None
    vllm: list[_Graphs] | None = None
    inductor: list[_Inductor] | None = None
    entries: list[_Inductor] | None = None


def entries_in(manifest: bytes) -> list[CacheEntry]:
    """Return the entries that a cache manifest (manifest.json) lists; an empty list if there is no manifest.

    Raises:
        GKMError: METADATA_INVALID; TOO_LARGE beyond MAX_ENTRIES.
    """
    if not manifest:
        return []
    # Compilers write dense metadata for a kernel; the decoder creates only the objects of entries.
    found = decode(manifest, _Manifest, "the cache manifest", json_limits.check_objects)
    entries = [_kernel(kernel) for kernel in found.triton or []]
    for graphs in found.vllm or []:
        entries += [_kernel(kernel) for kernel in graphs.triton]
        entries += [CacheEntry("binary", each.code_hash or graphs.hash, each.target_device) for each in graphs.binary]
        entries += [CacheEntry("aot_compile", each.hash or graphs.hash) for each in graphs.aot]
        entries += [_kernel(each, each.form) for each in graphs.inductor]
    entries += [_kernel(each, each.form) for each in (*(found.inductor or []), *(found.entries or []))]
    if len(entries) > MAX_ENTRIES:
        raise GKMError(Reason.TOO_LARGE, f"the cache manifest lists {len(entries)} entries, at most {MAX_ENTRIES}")
    return entries


def _kernel(kernel: _Kernel, form: str = "triton") -> CacheEntry:
    return CacheEntry(
        form,
        kernel.hash,
        kernel.backend,
        str(kernel.arch),
        kernel.warp_size,
        kernel.ptx_version,
        kernel.dummy_key,
    )
