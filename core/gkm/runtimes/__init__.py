"""A table of the runtimes whose compiled kernels GKM packs: their variables, and the paths that they write. Pure.

Every part of GKM that must know a runtime reads its row: the build, captures, the pod webhook and the command line. A
further runtime is one module here and one line in RUNTIMES.

May import only the standard library; must never read a file.
"""

from typing import Final

from gkm.runtimes.cute_dsl import CUTE_DSL
from gkm.runtimes.deepgemm import DEEPGEMM
from gkm.runtimes.flashinfer import FLASHINFER
from gkm.runtimes.helion import HELION
from gkm.runtimes.inductor import INDUCTOR
from gkm.runtimes.quack import QUACK
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.sglang import SGLANG, SGLANG_JIT
from gkm.runtimes.tilelang import TILELANG
from gkm.runtimes.triton import TRITON
from gkm.runtimes.tvm_ffi import TVM_FFI
from gkm.runtimes.vllm import VLLM

RUNTIMES: Final[tuple[Runtime, ...]] = (
    *(SGLANG, VLLM, INDUCTOR, TRITON),
    *(DEEPGEMM, FLASHINFER, TILELANG, CUTE_DSL, QUACK, SGLANG_JIT, TVM_FFI, HELION),
)
"""All runtimes in the order of recognition: the first three contain caches of later ones in their directories."""
BY_NAME: Final[dict[str, Runtime]] = {runtime.name: runtime for runtime in RUNTIMES}
"""The runtimes by the name that images and GKMCaches use."""
VARIABLES: Final = tuple(variable for runtime in RUNTIMES for variable in runtime.variables)
"""The environment variables that name a cache directory."""
__all__ = ["BY_NAME", "INDUCTOR", "RUNTIMES", "TRITON", "TVM_FFI", "VARIABLES", "VLLM", "Runtime"]
