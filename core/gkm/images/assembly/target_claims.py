"""Decide which GPU a cache is for, from its files and the user's options; contradictions are refused.

Nodes decide by the label, so a wrong label does harm. The GPU of the machine that builds the image is never used.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.assembly.compiled_targets import CompiledTargets
from gkm.images.assembly.versions import DependencyVersions

_STATE_HINT: Final = (
    "state it with --gpu cuda:75:32, or with --gpus FILE: `gkm node detect -o json` writes it on the machine that "
    "compiled the cache"
)


def kernel_targets(
    kernels: set[GpuTarget], stated: Iterable[GpuTarget], versions: DependencyVersions
) -> list[dict[str, Any]]:
    """Return the label with the GPUs of a Triton cache.

    `kernels` are the GPUs in its metadata, `stated` those from options.

    Raises:
        GKMError: METADATA_INVALID when the user states another GPU.
    """
    check_claims(stated, kernels, "the stated GPU is")
    return [versions.target(found.backend, found.arch, found.warp_size) for found in sorted(kernels)]


def found_or_stated(found: set[GpuTarget], stated: Sequence[GpuTarget]) -> list[GpuTarget]:
    """Return the GPUs that a cache names, sorted; if it names no GPU, the GPU that the user stated.

    Raises:
        GKMError: METADATA_INVALID when the user states another GPU, METADATA_MISSING when no GPU is known.
    """
    check_claims(stated, found, "the stated GPU is")
    if found or len(set(stated)) == 1:
        return sorted(found or set(stated))
    also = f", and {len(set(stated))} kinds of GPU are stated" if stated else ""
    raise GKMError(Reason.METADATA_MISSING, f"the cache does not say which GPU it was compiled for{also}", _STATE_HINT)


def check_claims(claims: Iterable[GpuTarget], found: set[GpuTarget], words: str) -> None:
    """Refuse GPUs that the user stated and the cache does not name; a cache without names accepts any.

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
                "build an image of a cache from one kind of GPU, and state that GPU, or state no GPU",
            )


def compiled_target(compiled: CompiledTargets) -> set[GpuTarget]:
    """Return the GPU that the artifacts name; empty if they name no GPU.

    Raises:
        GKMError: METADATA_INVALID when they name two.
    """
    if compiled.is_ambiguous:
        (one, first), (other, second) = compiled.named_in.items()
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the artifacts contradict each other: {first[-200:]} is compiled for {one.arch_name}, "
            f"{second[-200:]} for {other.arch_name}",
            "build an image for each kind of GPU, each from a separate cache",
        )
    return set(compiled.named_in)
