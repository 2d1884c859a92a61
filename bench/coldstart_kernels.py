# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN201, PLR0917 -- a kernel is Triton's language in Python's grammar: its parameters have no types
"""Run by the Python that has Triton: a process as a server starts it, up to its first kernels; prints JSON.

    coldstart_kernels.py machine                 {"device": the name of the GPU here, or ""}
    coldstart_kernels.py launch                  launch them on the GPU of this machine, and wait for each
    coldstart_kernels.py cuda:90:32              compile them for a GPU that is not there

A number after these is how many of the kernels there are.
$TRITON_CACHE_DIR is the cache. Moments are seconds of CLOCK_MONOTONIC, which all processes of the machine share. Triton
launches without torch; memory comes from the CUDA driver itself. Where torch is installed, Triton imports it before its
first launch: this program does so before the moment `imported`, as a program that uses torch.
"""

import contextlib
import ctypes
import json
import sys
import time
from dataclasses import dataclass

import triton
import triton.language as tl
from triton import knobs
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SIDE = 256
"""Rows and columns of every matrix that is launched."""
ONE = {"fp16": (2, 0x3C00), "fp32": (4, 0x3F800000)}
"""Bytes of a number and the bits of 1.0, by type."""
TWO = 0x40000000
"""The bits of 2.0 in fp32: what a matrix holds before a kernel writes it, and no kernel computes."""


@triton.jit
def matmul(a, b, c, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def softmax(x, out, n, block: tl.constexpr):
    offsets = tl.arange(0, block)
    row = tl.load(x + tl.program_id(0) * n + offsets, mask=offsets < n, other=-float("inf"))
    raised = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + offsets, raised / tl.sum(raised, 0), mask=offsets < n)


@triton.jit
def layer_norm(x, weight, out, n, block: tl.constexpr):
    offsets = tl.arange(0, block)
    inside = offsets < n
    row = tl.load(x + tl.program_id(0) * n + offsets, mask=inside, other=0.0)
    centered = tl.where(inside, row - tl.sum(row, 0) / n, 0.0)
    scaled = centered / tl.sqrt(tl.sum(centered * centered, 0) / n + 1e-5)
    tl.store(out + tl.program_id(0) * n + offsets, scaled * tl.load(weight + offsets, mask=inside), mask=inside)


@triton.jit
def attention(q, k, v, out, n, block_m: tl.constexpr, block_n: tl.constexpr, head: tl.constexpr):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    depth = tl.arange(0, head)
    query = tl.load(q + rows[:, None] * head + depth[None, :])
    highest = tl.full((block_m,), -float("inf"), tl.float32)
    weights = tl.zeros((block_m,), tl.float32)
    total = tl.zeros((block_m, head), tl.float32)
    for start in range(0, n, block_n):
        columns = start + tl.arange(0, block_n)
        keys = tl.load(k + columns[None, :] * head + depth[:, None])
        scores = tl.dot(query, keys)
        higher = tl.maximum(highest, tl.max(scores, 1))
        factor = tl.exp(highest - higher)
        raised = tl.exp(scores - higher[:, None])
        values = tl.load(v + columns[:, None] * head + depth[None, :])
        total = tl.dot(raised.to(tl.float16), values, total * factor[:, None])
        weights = weights * factor + tl.sum(raised, 1)
        highest = higher
    tl.store(out + rows[:, None] * head + depth[None, :], total / weights[:, None])


@dataclass(frozen=True)
class Kernel:
    """A kernel with its constants; `types` are those of its other parameters, an integer is SIDE."""

    function: object
    types: str
    constants: dict
    grid: tuple
    warps: int = 4

    def source(self):
        """Return what `triton.compile` takes."""
        names = self.function.arg_names
        kinds = [*self.types.split(), *["constexpr"] * len(self.constants)]
        return ASTSource(self.function, dict(zip(names, kinds, strict=True)), self.constants)


def _matmul(block_m, block_n, block_k, warps) -> Kernel:
    constants = {"block_m": block_m, "block_n": block_n, "block_k": block_k}
    return Kernel(matmul, "*fp16 *fp16 *fp32 i32 i32", constants, (SIDE // block_m, SIDE // block_n), warps)


KERNELS = [
    _matmul(128, 128, 32, 8),
    # Other tiles of the same product are other kernels: this is what an autotuner tries.
    _matmul(64, 128, 32, 4),
    _matmul(128, 64, 32, 4),
    _matmul(64, 64, 64, 4),
    Kernel(softmax, "*fp32 *fp32 i32", {"block": SIDE}, (SIDE,)),
    Kernel(layer_norm, "*fp32 *fp32 *fp32 i32", {"block": SIDE}, (SIDE,)),
    Kernel(attention, "*fp16 *fp16 *fp16 *fp32 i32", {"block_m": 64, "block_n": 64, "head": 64}, (SIDE // 64,)),
]


class Memory:
    """A matrix of equal numbers on the GPU, as Triton takes it: with an address and a type."""

    def __init__(self, cuda, dtype, bits=None) -> None:
        self.dtype = dtype
        size, one = ONE[dtype]
        address = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(SIDE * SIDE * size))
        self.address = address.value
        fill, number = {2: ("cuMemsetD16_v2", ctypes.c_uint16), 4: ("cuMemsetD32_v2", ctypes.c_uint32)}[size]
        cuda.call(fill, ctypes.c_uint64(self.address), number(bits or one), ctypes.c_size_t(SIDE * SIDE))

    def data_ptr(self):
        """Return the address."""
        return self.address


class Cuda:
    """The CUDA driver, with the primary context of the first GPU, which Triton uses too."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        """Call a function of the driver, which returns 0 when it succeeds."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with CUDA error {code}")

    def device(self):
        """Return the name of the GPU."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, ctypes.c_int(len(name)), ctypes.c_int(0))
        return name.value.decode(errors="replace")

    def first_number(self, memory):
        """Return the first number of a matrix of fp32, when every kernel has ended."""
        self.call("cuCtxSynchronize")
        number = ctypes.c_float()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(number), ctypes.c_uint64(memory.address), ctypes.c_size_t(4))
        return number.value


def launched(cuda, kernel) -> None:
    """Launch a kernel and wait for it.

    Raises:
        RuntimeError: it computed something else, or the driver refused.
    """
    *inputs, _ = (each for each in kernel.types.split() if each[0] == "*")
    out = Memory(cuda, "fp32", TWO)
    sizes = [SIDE] * kernel.types.count("i32")
    matrices = [*(Memory(cuda, each[1:]) for each in inputs), out]
    kernel.function[kernel.grid](*matrices, *sizes, **kernel.constants, num_warps=kernel.warps)
    # Of matrices of ones: a sum of products, a share of the row, the distance from the mean, and the mean.
    expected = {"matmul": SIDE, "softmax": 1 / SIDE, "layer_norm": 0.0, "attention": 1.0}[kernel.function.__name__]
    found = cuda.first_number(out)
    if abs(found - expected) > 1e-3 * max(1.0, expected):
        raise RuntimeError(f"{kernel.function.__name__} computed {found} instead of {expected}")


def main(what: str, count: int = len(KERNELS)) -> None:
    """Print what happened."""
    if what in ("launch", "machine"):
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401 -- see above
    imported = time.monotonic()
    if what == "machine":
        there = backends["nvidia"].driver.is_active()
        json.dump({"device": Cuda().device() if there else ""}, sys.stdout)
        return
    hits: list[bool] = []
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    moments = []
    if what == "launch":
        cuda = Cuda()
        for kernel in KERNELS[:count]:
            launched(cuda, kernel)
            moments.append(time.monotonic())
    else:
        backend, arch, warp_size = what.split(":")
        target = GPUTarget(backend, int(arch) if backend == "cuda" else arch, int(warp_size))
        for kernel in KERNELS[:count]:
            triton.compile(kernel.source(), target=target, options={"num_warps": kernel.warps})
            moments.append(time.monotonic())
    json.dump({"imported": imported, "moments": moments, "hits": hits}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
