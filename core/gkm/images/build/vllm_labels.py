"""The labels of a vLLM cache, and the GPUs that they state.

Names and values are MCV's, except for the GPU of a binary cache: MCV writes GPU 0 of the machine that builds the image,
and without a GPU a default, sm_75 or gfx908. Nodes decide by that label, so a wrong one does harm. Here the artifacts
decide; if they name no GPU, the Triton kernels beside them do, then the variable that MCV reads, then the user. The
machine that builds the image never does. GKM refuses sources that contradict each other, because one of them is wrong.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.build.compiled_targets import CompiledTargets, target_of
from gkm.images.build.versions import DependencyVersions
from gkm.images.build.vllm import AOT, ROOT, CacheKeyFactors, VllmScan
from gkm.images.cache import Format, is_valid_target

MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "triton")
VARIABLE = "VLLM_PAGED_ATTN_ARCH"
_STATE_HINT = (
    "state it with --gpu cuda:75:32, or with --gpus FILE: `gkm node detect -o json` writes it on the machine that "
    "compiled the cache"
)


def vllm_labels(vllm_scan: VllmScan) -> dict[str, str]:
    """Return the labels of vLLM's caches alone."""
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


def kernel_targets(
    kernels: set[GpuTarget], stated: Iterable[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the summary of a Triton cache; `kernels` are the targets of all its kernels, `stated` those from the user.

    Raises:
        GKMError: METADATA_INVALID when the user states another GPU.
    """
    _check(stated, kernels, "the stated GPU is")
    return [versions.target(found.backend, found.arch, found.warp_size) for found in sorted(kernels)]


def vllm_targets(
    vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the summary of a vLLM cache, with the parameters of `kernel_targets`.

    Raises:
        GKMError: METADATA_MISSING when the GPU is unknown, METADATA_INVALID when sources contradict each other.
    """
    factors = vllm_scan.factors
    if not factors and not any(vllm_scan.bundles.values()):
        return kernel_targets(kernels, stated, versions)  # a Triton cache in vLLM, which MCV treats as Triton alone
    cuda = sorted({found.variable("VLLM_MAIN_CUDA_VERSION")[:32] for found in factors}) or [""]
    targets = [
        versions.target(found.backend, found.arch_name, found.warp_size, version)
        for found in _targets_of(vllm_scan, kernels, stated)
        for version in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]


def _targets_of(vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs of a cache, sorted; `kernels` are those of Triton's kernels; raises as `vllm_targets`."""
    compiled = _compiled_target(vllm_scan.compiled)
    variables = {target for target in map(_variable, vllm_scan.factors) if target}
    found = compiled or kernels or variables
    _check(kernels, found, "its Triton kernels are")
    _check(variables, found, f"{VARIABLE} in cache_key_factors.json is")
    _check(stated, found, "the stated GPU is")
    if found or len(set(stated)) == 1:
        return sorted(found or set(stated))
    also = f", and {len(set(stated))} kinds of GPU are stated" if stated else ""
    raise GKMError(Reason.METADATA_MISSING, f"the cache does not say which GPU it was compiled for{also}", _STATE_HINT)


def _check(claims: Iterable[GpuTarget], found: set[GpuTarget], words: str) -> None:
    """Refuse claims that are not among the GPUs found; if none is found, any claim passes.

    Raises:
        GKMError: METADATA_INVALID.
    """
    known = {(target.backend, target.arch) for target in found}
    for claim in claims:
        if known and (claim.backend, claim.arch) not in known:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"the cache is compiled for {' and '.join(target.arch_name for target in sorted(found))}, but {words} "
                f"for {claim.arch_name}",
                "build an image of a cache from one kind of GPU, and state that GPU or none",
            )


def _compiled_target(compiled: CompiledTargets) -> set[GpuTarget]:
    """Return the GPU that the artifacts name; an empty set if they name none.

    Raises:
        GKMError: METADATA_INVALID when they name two.
    """
    if compiled.is_ambiguous:
        (one, first), (other, second) = compiled.named_in.items()
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the artifacts contradict each other: {first[-200:]} is compiled for {one.arch_name}, "
            f"{second[-200:]} for {other.arch_name}",
            "build an image for each kind of GPU, each from a cache of its own",
        )
    return set(compiled.named_in)


def _variable(factors: CacheKeyFactors) -> GpuTarget | None:
    """Return the GPU in the environment of the compilation."""
    arch = factors.variable(VARIABLE).removeprefix("sm_")
    # Triton and nodes call ROCm's GPUs hip; MCV's "rocm" matches no GPU.
    device = factors.variable("VLLM_TARGET_DEVICE") or "cuda"
    target = target_of({"rocm": "hip"}.get(device, device), arch)
    return target if arch and is_valid_target(target) else None
