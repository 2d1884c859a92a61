# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002 -- a kernel is Triton's language in Python's grammar: its parameters have no Python types
"""Run by the Python that has Triton: compiles one kernel for a GPU that is not there, and says whether it had to.

BLOCK is a constant of the kernel: another one is another cache entry. So is another number of warps, BLOCK:WARPS, and
another architecture, BLOCK:WARPS:80.
$TRITON_CACHE_DIR is the cache.
"""

import hashlib
import json
import sys
import time

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, n, block) -> None:
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


def main(block: int, warps: int | None = None, arch: int = 90) -> None:
    """Print what happened as JSON; of a failure, the stages that were entered."""
    hits: list[bool] = []
    reached: list[str] = []
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    add_stages = CUDABackend.add_stages

    def told(self, stages, *rest) -> None:
        add_stages(self, stages, *rest)
        reached.extend(stages)

    CUDABackend.add_stages = told
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "block": "constexpr"}
    options = {"num_warps": warps} if warps else None
    began = time.perf_counter()
    try:
        kernel = triton.compile(
            ASTSource(add, signature, {"block": block}), target=GPUTarget("cuda", arch, 32), options=options
        )
    except Exception:
        json.dump({"stages": reached}, sys.stdout)
        raise
    seconds = time.perf_counter() - began
    binary = hashlib.sha256(kernel.asm["cubin"]).hexdigest()
    paths = sorted(str(path) for path in kernel.metadata_group.values())
    found = {"hit": hits == [True], "stages": reached, "binary": binary, "paths": paths, "seconds": seconds}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
