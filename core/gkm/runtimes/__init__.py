"""One row for each runtime whose compiled kernels GKM packs: its variables, and the paths that it writes. Pure.

Every part of GKM that must know a runtime reads its row: the build, captures, the pod webhook and the command line. A
further runtime is one module here and one line in RUNTIMES.

May know nothing but the standard library; must never read a file.
"""

from typing import Final

from gkm.runtimes.inductor import INDUCTOR
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.triton import TRITON
from gkm.runtimes.vllm import VLLM

RUNTIMES: Final[tuple[Runtime, ...]] = (VLLM, INDUCTOR, TRITON)
"""In the order of recognition: each of the first two writes the caches of the ones after it in its own directory."""
BY_NAME: Final[dict[str, Runtime]] = {runtime.name: runtime for runtime in RUNTIMES}
"""The rows by the name that images and GKMCaches state."""
VARIABLES: Final = tuple(variable for runtime in RUNTIMES for variable in runtime.variables)
"""The variables that name the directory of a cache."""
__all__ = ["BY_NAME", "INDUCTOR", "RUNTIMES", "TRITON", "VARIABLES", "VLLM", "Runtime"]
