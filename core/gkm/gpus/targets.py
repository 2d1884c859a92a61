"""The build targets of a cache in a normal form, one spelling for each kind of GPU. Pure.

Targets come from labels, which are not trusted and which MCV writes in its own ways (docs/reference/preflight.md).
"""

import re

from gkm.api.targets import CUDA, HIP, RDNA, GpuTarget
from gkm.gpus.values import Gpu, printable

_BACKEND_ALIASES = {"rocm": HIP}
"""vLLM's name for the backend that Triton and nodes call hip (VLLM_TARGET_DEVICE)."""
_MAX_WARP = 1024
# "90", "sm_90", and "sm_90a" or "sm_100f", which run on the GPU of that number.
_CUDA_ARCH = re.compile(r"(?:sm_?)?([0-9]{2,3})[af]?", re.ASCII)
_RDNA_WARP, _CLAIMED_WARP = 32, 64
_MAX_LISTED_CHARACTERS = 24


class NormalizedTarget(GpuTarget, frozen=True):
    """A cache's build target in normal form: CUDA architectures without `sm_`, HIP architectures without features."""

    @property
    def is_possible(self) -> bool:
        """Return whether a GPU with these values can exist."""
        return bool(self.backend.strip() and self.arch.strip()) and 1 <= self.warp_size <= _MAX_WARP

    @property
    def description(self) -> str:
        """Return backend, architecture and warp size for a message."""
        backend, arch = printable(self.backend, _MAX_LISTED_CHARACTERS), printable(self.arch, _MAX_LISTED_CHARACTERS)
        return f"backend {backend!r}, architecture {arch!r}, warp size {self.warp_size}"

    def matches_warp_size(self, gpu: Gpu) -> bool:
        """Return whether a target of the GPU's architecture also has the GPU's warp size.

        MCV writes 64 for every AMD GPU, also for RDNA, whose warp size is 32: for RDNA a target's 64 is ignored, and
        the architecture alone decides.
        """
        if RDNA.fullmatch(self.arch) and (gpu.warp_size, self.warp_size) == (_RDNA_WARP, _CLAIMED_WARP):
            return True
        return self.warp_size == gpu.warp_size


def normalize_target(target: GpuTarget) -> NormalizedTarget:
    """Return a build target in normal form."""
    backend = _BACKEND_ALIASES.get(target.backend, target.backend)
    return NormalizedTarget(
        backend,
        _arch(backend, target.arch),
        target.warp_size,
        target.ptx_version,
        target.cuda_version,
    )


def _arch(backend: str, arch: str) -> str:
    if backend == CUDA:
        match = _CUDA_ARCH.fullmatch(arch)
        return match[1] if match else arch.removeprefix("sm_")
    # "gfx90a:sramecc+:xnack-": the features concern the compiler only, Triton writes the processor alone.
    return arch.partition(":")[0] if backend == HIP else arch
