"""The contents of a cache directory, found in one walk: the runtime that wrote it, its manifest and its labels.

Follows the order of MCV's DetectCaches: vLLM first, Triton only if it is not vLLM's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.build.factors_file import redact
from gkm.images.build.go_json import marshal, marshal_indent
from gkm.images.build.tree import EVERYTHING, Selection, TreeEntry, walk
from gkm.images.build.triton import Kernel, manifest_entry, parse_kernel
from gkm.images.build.versions import DependencyVersions
from gkm.images.build.vllm import ROOT, VllmScan
from gkm.images.build.vllm_labels import kernel_targets, vllm_labels, vllm_targets
from gkm.images.cache import MAX_TARGETS, Format
from gkm.images.pulling.extract import MAX_MANIFEST_BYTES


@dataclass(frozen=True, slots=True)
class CacheContents:
    """A cache in a directory: `manifest` is manifest.json, `size_bytes` the sum of all files."""

    format: Format
    manifest: bytes
    labels: dict[str, str]
    size_bytes: int
    secrets: tuple[str, ...] = ()
    """The environment variables of the compilation whose values the image replaces by null."""


def scan_directory(
    directory: Path, stated: Sequence[GpuTarget], versions: DependencyVersions, selected: Selection = EVERYTHING
) -> CacheContents:
    """Return the contents of a directory; `stated` are GPUs from the user, for a cache that does not name its GPU.

    Raises:
        GKMError: METADATA_MISSING when it is no cache or its GPU is unknown, METADATA_INVALID when its parts or
            `stated` name different GPUs, TOO_LARGE; as `walk` raises.
        OSError: it cannot be read.
    """
    vllm_scan, has_triton_marker, size = VllmScan(), False, 0
    kernels: list[Kernel] = []
    secrets: set[str] = set()
    for entry in walk(directory, selected):
        kernel = parse_kernel(entry)
        if kernel is not None:
            kernels.append(kernel)
        vllm_scan.add(entry, kernel)
        has_triton_marker |= _is_triton_marker(entry)
        packed = redact(entry)
        secrets.update(packed.names if packed else ())
        size += len(packed.data) if packed else entry.size
    kind = _format(directory, vllm_scan, is_triton=has_triton_marker and bool(kernels))
    targets = {kernel.gpu_target for kernel in kernels}
    if len(targets) > MAX_TARGETS:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache has kernels for {len(targets)} kinds of GPU, at most {MAX_TARGETS} can be stated",
            "build several images",
        )
    if kind is Format.VLLM:
        count, entries, labels = vllm_scan.count, vllm_scan.entries, vllm_labels(vllm_scan)
        summary = vllm_targets(vllm_scan, targets, stated, versions)
    else:
        count, entries, labels = len(kernels), [manifest_entry(kernel) for kernel in kernels], {}
        summary = kernel_targets(targets, stated, versions)
    manifest = marshal_indent({kind.value: entries}).encode()
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache in {directory} would need a manifest of {len(manifest)} bytes, at most {MAX_MANIFEST_BYTES}",
            "build several images",
        )
    labels |= {
        kind.count_label: str(count),
        kind.size_label: str(size),
        kind.summary_label: marshal({"targets": summary}),
    }
    return CacheContents(kind, manifest, labels, size, tuple(sorted(secrets)))


def _format(directory: Path, vllm_scan: VllmScan, *, is_triton: bool) -> Format:
    if vllm_scan.is_vllm and not vllm_scan.entries:
        # MCV builds an image with the summary `null`, which no node could use.
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory / ROOT} holds no compiled model of vLLM that is complete",
            "wait until vLLM has written its cache",
        )
    if not vllm_scan.is_vllm and not is_triton:
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds neither a Triton cache nor one of vLLM",
            "name the directory that TRITON_CACHE_DIR or VLLM_CACHE_ROOT pointed to while the kernels were compiled",
        )
    return Format.VLLM if vllm_scan.is_vllm else Format.TRITON


def _is_triton_marker(entry: TreeEntry) -> bool:
    group = entry.name.startswith("__grp__") and entry.name.endswith(".json")
    return entry.may_be_mark and (group or entry.name.endswith(".ttir") or entry.name == "__triton_launcher.so")
