"""The labels of a vLLM cache.

Names and values: prior-art/gkm-02-mcv-image-format.md, "Config labels", proven as gkm.images.build.vllm says. In one
point MCV is not followed: for which GPU a binary cache is (gkm.images.build.vllm_targets).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.build.compiled_targets import CompiledTargets, arch_name, target_of
from gkm.images.build.go_json import marshal
from gkm.images.build.versions import DependencyVersions
from gkm.images.build.vllm import AOT, ROOT, CacheKeyFactors, VllmScan
from gkm.images.cache import Format, GpuTarget, is_valid_target

MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "triton")
VARIABLE = "VLLM_PAGED_ATTN_ARCH"
_STATE_HINT = (
    "state it with --gpu cuda:75:32, or with --gpus FILE: `gkm node detect -o json` writes it on the machine that "
    "compiled the cache"
)


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
    factors = vllm_scan.factors
    if not factors and not any(found.models for found in vllm_scan.bundles.values()):
        # Triton in vLLM: MCV writes the targets as it does for Triton alone.
        check_stated(stated, kernels)
        return [versions.target(found.backend, found.arch, found.warp_size) for found in sorted(kernels)]
    cuda = sorted({found.variable("VLLM_MAIN_CUDA_VERSION")[:32] for found in factors}) or [""]
    targets = [
        versions.target(found.backend, arch_name(found), found.warp_size, version)
        for found in _targets_of(vllm_scan, kernels, stated)
        for version in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]


def _targets_of(vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs of a cache in an order of their own; `kernels` are those of Triton's kernels.

    Raises:
        GKMError: METADATA_MISSING when nothing says it, METADATA_INVALID when two sources contradict each other.
    """
    compiled = _compiled_target(vllm_scan.compiled)
    variables = {target for target in map(_variable, vllm_scan.factors) if target}
    found = compiled or kernels or variables
    _check(kernels, found, "the kernels of Triton inside are")
    _check(variables, found, f"{VARIABLE} in cache_key_factors.json says it is")
    check_stated(stated, found)
    if found or len(set(stated)) == 1:
        return sorted(found or set(stated))
    also = f", and {len(set(stated))} kinds of GPU are stated" if stated else ""
    raise GKMError(Reason.METADATA_MISSING, f"the cache does not say which GPU it was compiled for{also}", _STATE_HINT)


def check_stated(stated: Iterable[GpuTarget], found: set[GpuTarget]) -> None:
    """Refuse what a person states where the cache names other GPUs.

    Raises:
        GKMError: METADATA_INVALID.
    """
    _check(stated, found, "what is stated is")


def _check(claims: Iterable[GpuTarget], found: set[GpuTarget], words: str) -> None:
    """Refuse claims that are not among what was found; where nothing was found, any claim passes.

    Raises:
        GKMError: METADATA_INVALID.
    """
    known = {(target.backend, target.arch) for target in found}
    for claim in claims:
        if known and (claim.backend, claim.arch) not in known:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"the cache is compiled for {' and '.join(arch_name(target) for target in sorted(found))}, but {words} "
                f"for {arch_name(claim)}",
                "build an image of a cache that one kind of GPU has filled, and state that GPU or none",
            )


def _compiled_target(compiled: CompiledTargets) -> set[GpuTarget]:
    """Return the GPU that the artifacts name; none where they name none.

    Raises:
        GKMError: METADATA_INVALID, they name two.
    """
    if compiled.is_ambiguous:
        (one, first), (other, second) = compiled.named_in.items()
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the artifacts contradict each other: {first[-200:]} is compiled for {arch_name(one)}, "
            f"{second[-200:]} for {arch_name(other)}",
            "build an image for each kind of GPU, of a cache that it alone has filled",
        )
    return set(compiled.named_in)


def _variable(factors: CacheKeyFactors) -> GpuTarget | None:
    """Return the GPU that the environment of the compilation names."""
    arch = factors.variable(VARIABLE).removeprefix("sm_")
    # ROCm's GPUs are called hip by Triton and by nodes; MCV's "rocm" fits no GPU (prior-art/gkm-03-compat-check.md).
    device = factors.variable("VLLM_TARGET_DEVICE") or "cuda"
    target = target_of({"rocm": "hip"}.get(device, device), arch)
    return target if arch and is_valid_target(target) else None
