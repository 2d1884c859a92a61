"""A kind of GPU that a cache was built for: in labels, in the agent's checks and in the preflight check."""

import re

from msgspec import Struct

CUDA, HIP = "cuda", "hip"
# gfx10 and later are RDNA, whose threads run in groups of 32.
RDNA = re.compile(r"gfx1[0-9][0-9a-f]{2}", re.ASCII)


class GpuTarget(Struct, frozen=True, order=True, rename="camel"):
    """A kind of GPU that a kernel was compiled for: `arch` is "90" for sm_90, or "gfx90a".

    `warp_size` is the number of threads that run together. `ptx_version` is the version of PTX without its dot (84), or
    the major version of a driver (590). `ptx_version` and `cuda_version` (`12.9`) come from the label; 0 and "" without
    a label.
    """

    backend: str
    arch: str
    warp_size: int
    ptx_version: int = 0
    cuda_version: str = ""

    @property
    def arch_name(self) -> str:
        """Return the architecture in the usual notation."""
        return format_arch(self.backend, self.arch)


def format_arch(backend: str, arch: str) -> str:
    """Return an architecture in the usual notation: `sm_75`, `gfx942`."""
    return f"sm_{arch}" if backend == CUDA else arch
