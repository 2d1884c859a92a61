"""The contents of a cache directory, found in one walk: the runtime that wrote it, its manifest and its labels.

Follows the order of MCV's DetectCaches: vLLM first, Triton only if it is not vLLM's. Directories that start with a dot
or contain "vendor" do not count as marks of a runtime, but the image contains their files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.build.factors_file import redact
from gkm.images.build.go_json import marshal, marshal_indent
from gkm.images.build.tree import TreeEntry, walk
from gkm.images.build.triton import Kernel, manifest_entry, parse_kernel
from gkm.images.build.versions import DependencyVersions
from gkm.images.build.vllm import ROOT, VllmScan
from gkm.images.build.vllm_labels import check_stated, vllm_labels
from gkm.images.cache import MAX_TARGETS, Format, GpuTarget
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


def scan_directory(directory: Path, stated: Sequence[GpuTarget], versions: DependencyVersions) -> CacheContents:
    """Return the contents of a directory; `stated` are GPUs from the user, for a cache that does not name its GPU.

    Raises:
        GKMError: METADATA_MISSING when it is no cache or its GPU is unknown, METADATA_INVALID when its parts or
            `stated` name different GPUs, TOO_LARGE; as `walk` raises.
        OSError: it cannot be read.
    """
    vllm_scan, has_triton_marker, size = VllmScan(), False, 0
    kernels: list[Kernel] = []
    secrets: set[str] = set()
    for entry in walk(directory):
        kernel = parse_kernel(entry)
        if kernel is not None:
            kernels.append(kernel)
        vllm_scan.add(entry, kernel)
        has_triton_marker |= _is_triton_marker(entry)
        packed = redact(entry)
        secrets.update(packed.names if packed else ())
        size += len(packed.data) if packed else entry.size
    if vllm_scan.is_vllm:
        if not vllm_scan.entries:
            # MCV builds an image with the summary `null`, which no node could use.
            raise GKMError(
                Reason.METADATA_MISSING,
                f"{directory / ROOT} holds no compiled model of vLLM that is complete",
                "wait until vLLM has written its cache",
            )
        found = _vllm(vllm_scan, kernels, stated, size, versions)
    elif has_triton_marker and kernels:
        found = _triton(kernels, stated, size, versions)
    else:
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds neither a Triton cache nor one of vLLM",
            "name the directory that TRITON_CACHE_DIR or VLLM_CACHE_ROOT pointed to while the kernels were compiled",
        )
    if len(found.manifest) > MAX_MANIFEST_BYTES:
        raise _too_large(directory, f"a manifest of {len(found.manifest)} bytes, at most {MAX_MANIFEST_BYTES}")
    return replace(found, secrets=tuple(sorted(secrets)))


def _triton(
    kernels: list[Kernel], stated: Sequence[GpuTarget], size: int, versions: DependencyVersions
) -> CacheContents:
    kind = Format.TRITON
    targets = sorted({kernel.gpu_target for kernel in kernels})
    summary = {"targets": [versions.target(target.backend, target.arch, target.warp_size) for target in targets]}
    _check_targets(len(targets))
    check_stated(stated, set(targets))
    labels = {
        kind.count_label: str(len(kernels)),
        kind.size_label: str(size),
        kind.summary_label: marshal(summary),
    }
    manifest = {kind.value: [manifest_entry(kernel) for kernel in kernels]}
    return CacheContents(kind, marshal_indent(manifest).encode(), labels, size)


def _vllm(
    vllm_scan: VllmScan, kernels: list[Kernel], stated: Sequence[GpuTarget], size: int, versions: DependencyVersions
) -> CacheContents:
    targets = {kernel.gpu_target for kernel in kernels}
    _check_targets(len(targets))
    manifest = marshal_indent({Format.VLLM.value: vllm_scan.entries}).encode()
    return CacheContents(Format.VLLM, manifest, vllm_labels(vllm_scan, targets, stated, size, versions), size)


def _is_triton_marker(entry: TreeEntry) -> bool:
    parts = entry.path.split("/")
    directories = parts if entry.directory else parts[:-1]
    if any(part.startswith(".") or "vendor" in part for part in directories):
        return False
    name = parts[-1]
    group = name.startswith("__grp__") and name.endswith(".json")
    return group or name.endswith(".ttir") or name == "__triton_launcher.so"


def _check_targets(count: int) -> None:
    if count > MAX_TARGETS:
        raise GKMError(
            Reason.TOO_LARGE,
            f"the cache has kernels for {count} kinds of GPU, at most {MAX_TARGETS} can be stated",
            "build several images",
        )


def _too_large(directory: Path, what: str) -> GKMError:
    return GKMError(Reason.TOO_LARGE, f"the cache in {directory} would need {what}", "build several images")
