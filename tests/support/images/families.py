"""Directories of further runtimes: made by us after the sources that each row names, not by the runtimes.

Each is small and complete. Code has the headers that GKM reads, for an H100 (sm_90), and nothing behind them.
"""

import struct
from pathlib import Path
from typing import Final

from support.images.directories import MARK
from support.images.vllm import put

HEX, OTHER_HEX, SHORT = "0f" * 32, "1e" * 32, "0f" * 16
SHA: Final = "0f" * 20
STAMP: Final = "0123456789abcdef"


def cubin(sm: int = 90, abi: int = 7) -> bytes:
    """Return the header of a cubin: the architecture is in the lowest byte of e_flags, from ABI 8 on in the next."""
    flags = (0x500000 | sm << 8 | sm) if abi == 7 else (0x6000000 | sm << 8 | 0x0A)
    ident = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    return ident + struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 64, flags) + bytes(12)


def fatbin(*architectures: int, kind: int = 2) -> bytes:
    """Return a fatbin whose entries have 40 bytes that nobody can read, as compressed ones have."""
    entry = "<HHIQ12xI32x"
    size = struct.calcsize(entry)
    entries = b"".join(struct.pack(entry, kind, 0x101, size, 40, sm) + b"\xa5" * 40 for sm in architectures)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


ELF: Final = b"\x7fELF\x02\x01\x01" + bytes(57)
"""The header of a file for the host."""
OBJECT: Final = ELF + fatbin(90)
MLIR: Final = b"ML\xefR" + b"bytecode" + cubin() + b"crc4"

DEEPGEMM: Final = {
    **{f"cache/sm90_gemm.{SHORT}/{name}": data for name, data in (
        ("kernel.cu", b"//"), ("kernel.cubin", cubin()), ("meta.json", b"{}"), (".committed", b""))},
    **{f"cache/kernel.gemm.{SHORT}/{name}": data for name, data in (("kernel.cu", b"//"), ("kernel.cubin", cubin()))},
}  # fmt: skip
_FLASHINFER: Final = ".cache/flashinfer"
FLASHINFER: Final = {
    f"{_FLASHINFER}/0.7.2/90a/cached_ops/norm_90a_cute_dsl/rms.o": OBJECT,
    f"{_FLASHINFER}/0.7.2/90a/cached_ops/norm_90a_cute_dsl/meta.json": b"{}",
    f"{_FLASHINFER}/cubins/{SHA}/batched_gemm/Gemm_sm90a.cubin": cubin(),
    f"{_FLASHINFER}/cubins/{SHA}/fmha/cute-dsl/x86_64/sm_90a/prefill.so": OBJECT,
    f"{_FLASHINFER}/cubins/{SHA}/batched_gemm/checksums.txt": b"0f",
    f"{_FLASHINFER}/cubins/{SHA}/batched_gemm/include/flashInferMetaInfo.h": b"//",
    f"{_FLASHINFER}/autotune/v2/{STAMP}/manifest.json": b"{}",
    f"{_FLASHINFER}/autotune/v2/{STAMP}/entries/{STAMP}01234567.json": b"{}",
    f"{_FLASHINFER}/autotune/tuned.json": b"{}",
}
_TILELANG: Final = "0.1.15/linux-x86_64"
TILELANG: Final = {
    **{f"{_TILELANG}/kernels/{HEX}/{name}": data for name, data in (
        ("device_kernel.cu", b"//"), ("host_kernel.cu", b"//"), ("kernel_lib.so", OBJECT),
        ("params.json", b"[]"), ("manifest.json", b"{}"))},
    f"0.1.15/cuda-binaries/{HEX}/kernel.cubin": cubin(),
    f"0.1.15/cuda-binaries/{HEX}/metadata.json": b"{}",
}  # fmt: skip
CUTE_DSL: Final = {f"cute_dsl_{HEX}.mlir": MLIR}
QUACK: Final = {
    f"{HEX}/{OTHER_HEX}.o": OBJECT,
    f"{HEX}/{OTHER_HEX}.lock": b"",
    f"{HEX}/norm/{OTHER_HEX}.o": OBJECT,
    f"{HEX}/norm/{OTHER_HEX}.lock": b"",
    f"{'A2' * 26}/rms.autotune.json": b"{}",
}
_JIT: Final = f"sm90a/moe/build-{STAMP}/deps-{STAMP}"
SGLANG_JIT: Final = {f"{_JIT}/sgl_deps.json": b"{}", f"{_JIT}/moe.so": OBJECT}
HELION: Final = {
    f"{HEX}.best_config": b"{}",
    f"cute/0/cute_dsl_{HEX}.mlir": MLIR,
    f"cute/0/cute_dsl_{HEX}.json": b"{}",
}
MODEL: Final = f"torch_compile_cache/{SHORT}/rank_0_0/backbone"
SGLANG: Final = {
    f"{MODEL}/sglang_compile_cache.py": b"{}",
    f"{MODEL}/inductor_cache/fxgraph/aa/f{'a' * 51}/x": MARK,
    **{f"flashinfer/autotune/0.7.2/90/{STAMP}/rank_tp{rank}_pp0_dp0.json": b"{}" for rank in (0, 1)},
    **{f"cute_aot/{path}": data for path, data in QUACK.items()},
    **{f"tilelang/{path}": data for path, data in TILELANG.items()},
    **{f"deep_gemm/{path}": data for path, data in DEEPGEMM.items()},
    **FLASHINFER,
}
FAMILIES: Final = {
    "sglang": SGLANG,
    "deepgemm": DEEPGEMM,
    "flashinfer": FLASHINFER,
    "tilelang": TILELANG,
    "cutedsl": CUTE_DSL,
    "quack": QUACK,
    "sglangjit": SGLANG_JIT,
    "helion": HELION,
}
"""The files that an image gets, by the name of the runtime."""
TVM_FFI: Final = {
    f"norm_{STAMP}/{name}": data
    for name, data in (("build.ninja", b"rule"), (".ninja_log", b"#"), ("norm.so", ELF), ("lock", b""))
}


def family(root: Path, name: str) -> Path:
    """Write the directory of a runtime; return its root."""
    return tree(root, FAMILIES[name])


def tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write files; return the root."""
    for path, data in files.items():
        put(root, path, data)
    return root
