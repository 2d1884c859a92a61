"""The labels of a vLLM cache.

Names and values: prior-art/gkm-02-mcv-image-format.md, "Config labels", proven as gkm.images.build.vllm says. In one
point MCV is not followed: for which GPU a binary cache is (gkm.images.build.vllm_targets).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gkm.images.build.go_json import marshal
from gkm.images.build.versions import DependencyVersions
from gkm.images.build.vllm import AOT, ROOT, VllmScan
from gkm.images.build.vllm_targets import check_stated, targets_of
from gkm.images.cache import Format, GpuTarget

MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "triton")


def vllm_labels(
    vllm_scan: VllmScan,
    kernels: Iterable[GpuTarget],
    stated: Sequence[GpuTarget],
    size_bytes: int,
    versions: DependencyVersions,
) -> dict[str, str]:
    """Return the labels; `kernels` are the targets of all kernels inside, `stated` what a person says.

    Raises:
        GKMError: METADATA_MISSING when nothing says which GPU it is for, METADATA_INVALID at a contradiction.
    """
    entries = vllm_scan.entries
    present = {entry["cacheFormat"] for entry in entries}
    hashes = list(dict.fromkeys(entry["vllmHash"] for entry in entries))
    kind = Format.VLLM
    return {
        kind.count_label: str(vllm_scan.count),
        kind.size_label: str(size_bytes),
        kind.summary_label: marshal({"targets": _targets(vllm_scan, set(kernels), stated, versions)}),
        f"cache.{kind.value}.image/format": ",".join(name for name in _FORMATS if name in present),
        f"{MOUNT_PREFIX}/framework": "vllm",
        f"{MOUNT_PREFIX}/cache-type": "torch-compile",
        f"{MOUNT_PREFIX}/cache-hash": ",".join(hashes),
        f"{MOUNT_PREFIX}/cache-mount-subpath": f"{ROOT}/{AOT}" if hashes[0] in vllm_scan.bundles else ROOT,
        f"{MOUNT_PREFIX}/cache-root-env": CACHE_ROOT,
    }


def _targets(
    vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    factors = [prefix.factors for found in vllm_scan.hashes.values() for prefix in found.binaries if prefix.factors]
    if not factors and not any(found.models for found in vllm_scan.bundles.values()):
        # Triton in vLLM: MCV writes the targets as it does for Triton alone.
        check_stated(stated, kernels)
        return [versions.target(found.backend, found.arch, found.warp_size) for found in sorted(kernels)]
    cuda = sorted({found.variable("VLLM_MAIN_CUDA_VERSION")[:32] for found in factors}) or [""]
    targets = [
        versions.target(
            found.backend, f"sm_{found.arch}" if found.backend == "cuda" else found.arch, found.warp_size, v
        )
        for found in targets_of(vllm_scan, kernels, stated)
        for v in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]
