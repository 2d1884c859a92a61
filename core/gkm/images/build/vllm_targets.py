"""For which GPUs a vLLM cache is: what its files say, held against what a person says. Pure.

MCV labels a binary cache with GPU 0 of the machine that builds the image, and without a GPU with a default, sm_75 or
gfx908 (prior-art/gkm-03-compat-check.md). Such a label may lie, and nodes go by it. Here the artifacts decide; where
they name no GPU, the kernels of Triton beside them do, then the variable that MCV reads, then a person. The machine
that builds the image never does. Sources that contradict each other are refused: one of them is wrong.
"""

from collections.abc import Iterable, Sequence

from gkm.api.errors import GKMError, Reason
from gkm.images.build.compiled_targets import CompiledTargets, arch_name, target_of
from gkm.images.build.vllm import CacheKeyFactors, VllmScan
from gkm.images.cache import GpuTarget, is_valid_target

VARIABLE = "VLLM_PAGED_ATTN_ARCH"
_STATE_HINT = (
    "state it with --gpu cuda:75:32, or with --gpus FILE: `gkm node detect -o json` writes it on the machine that "
    "compiled the cache"
)


def targets_of(vllm_scan: VllmScan, kernels: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs of a cache in an order of their own; `kernels` are those of Triton's kernels.

    Raises:
        GKMError: METADATA_MISSING when nothing says it, METADATA_INVALID when two sources contradict each other.
    """
    factors = [prefix.factors for found in vllm_scan.hashes.values() for prefix in found.binaries if prefix.factors]
    compiled = _compiled_target(vllm_scan.compiled)
    variables = {target for target in map(_variable, factors) if target}
    found = compiled or kernels or variables
    check(kernels, found, "the kernels of Triton inside are")
    check(variables, found, f"{VARIABLE} in cache_key_factors.json says it is")
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
    check(stated, found, "what is stated is")


def check(claims: Iterable[GpuTarget], found: set[GpuTarget], words: str) -> None:
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
