"""The labels of a vLLM cache, and the GPUs that they state.

Names and values are MCV's, except for the GPU of a binary cache: MCV writes GPU 0 of the machine that builds the image,
and without a GPU a default, sm_75 or gfx908. Nodes decide by that label, so a wrong one does harm. Here the artifacts
decide; if they name no GPU, the Triton kernels beside them do, then the variable that MCV reads, then the user. The
machine that builds the image never does. GKM refuses sources that contradict each other, because one of them is wrong.
"""

from collections.abc import Sequence
from typing import Any

from gkm.api.targets import GpuTarget
from gkm.images.assembly.compiled_targets import target_of
from gkm.images.assembly.target_claims import check_claims, compiled_target, found_or_stated, kernel_targets
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.assembly.vllm import CacheKeyFactors, VllmScan
from gkm.images.cache import Format, is_valid_target
from gkm.runtimes.vllm import AOT, ROOT

MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "inductor", "triton")
"""The second last one is an extension of GKM."""
VARIABLE = "VLLM_PAGED_ATTN_ARCH"


def vllm_labels(vllm_scan: VllmScan) -> dict[str, str]:
    """Return the labels of an image that only vLLM caches have."""
    entries = vllm_scan.entries
    present = {entry["cacheFormat"] for entry in entries}
    hashes = list(dict.fromkeys(entry["vllmHash"] for entry in entries))
    return {
        f"cache.{Format.VLLM.value}.image/format": ",".join(name for name in _FORMATS if name in present),
        f"{MOUNT_PREFIX}/framework": "vllm",
        f"{MOUNT_PREFIX}/cache-type": "torch-compile",
        f"{MOUNT_PREFIX}/cache-hash": ",".join(hashes),
        f"{MOUNT_PREFIX}/cache-mount-subpath": f"{ROOT}/{AOT}" if hashes[0] in vllm_scan.bundles else ROOT,
        f"{MOUNT_PREFIX}/cache-root-env": CACHE_ROOT,
    }


def vllm_targets(
    vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the label with the GPUs of a vLLM cache; the parameters are as for `kernel_targets`.

    Raises:
        GKMError: METADATA_MISSING when the GPU is unknown, METADATA_INVALID when sources contradict each other.
    """
    factors = vllm_scan.factors
    if not vllm_scan.has_compiled:
        return kernel_targets(kernels, stated, versions)  # a Triton cache in vLLM, which MCV treats as Triton alone
    cuda = sorted({found.variable("VLLM_MAIN_CUDA_VERSION")[:32] for found in factors}) or [""]
    targets = [
        versions.target(found.backend, found.arch_name, found.warp_size, version)
        for found in _targets_of(vllm_scan, kernels, stated)
        for version in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]


def _targets_of(vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs of a cache, sorted; `kernels` are the GPUs of Triton's kernels; raises as `vllm_targets`."""
    compiled = compiled_target(vllm_scan.compiled)
    variables = {target for target in map(_variable, vllm_scan.factors) if target}
    found = compiled or kernels or variables
    check_claims(kernels, found, "its Triton kernels are")
    check_claims(variables, found, f"{VARIABLE} in cache_key_factors.json is")
    return found_or_stated(found, stated)


def _variable(factors: CacheKeyFactors) -> GpuTarget | None:
    """Return the GPU in the environment of the compilation."""
    arch = factors.variable(VARIABLE).removeprefix("sm_")
    # Triton and nodes call ROCm's GPUs hip; MCV's "rocm" matches no GPU.
    device = factors.variable("VLLM_TARGET_DEVICE") or "cuda"
    target = target_of({"rocm": "hip"}.get(device, device), arch)
    return target if arch and is_valid_target(target) else None
