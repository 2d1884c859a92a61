"""CuTe DSL: a file for each function, with its cubin inside. Pure.

Source: nvidia-cutlass-dsl 4.8.1. The key has the absolute path of the user's source, which is in the container image,
and not the path of the cache. Only direct calls of functions with `@jit` use the cache.
"""

from typing import Final

from gkm.runtimes.layout import file
from gkm.runtimes.runtime import Runtime

_FUNCTION: Final = file(r"cute_dsl_[0-9a-f]{64}\.mlir", needs=())
MLIR: Final = b"ML\xefR"
"""The first bytes of MLIR bytecode."""

CUTE_DSL: Final = Runtime(
    name="cutedsl",
    title="CuTe DSL",
    variables=("CUTE_DSL_CACHE_DIR",),
    layout=(_FUNCTION,),
    marks=(_FUNCTION,),
)
