"""Triton: a directory for each kernel, and one for each launcher. Pure.

Sources: triton/runtime/cache.py (FileCacheManager), triton/compiler/compiler.py, triton/backends, 3.0 to 3.9. A key is
the base32 or hexadecimal form of a SHA-256.

The metadata of a kernel, `<name>.json`, holds the options of the compilation, the environment variables that are part
of the key, in capitals, and results. The source, the argument types, the constants and the version of ptxas are parts
of the key that it does not hold.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from gkm.runtimes.keys import Entries, Factor, Key, MissReason, digest
from gkm.runtimes.layout import file, folder
from gkm.runtimes.runtime import Runtime

SUFFIXES: Final = (
    *("json", "source", "ttir", "ttgir", "llir", "so"),
    *("ptx", "cubin"),
    *("amdgcn", "hsaco"),
    *("spv", "zebin"),
)
"""File suffixes of the compilation stages: common ones, then NVIDIA's, AMD's and Intel's."""
KEY: Final = r"[A-Z2-7]{52}|[0-9a-f]{64}"
GROUP: Final = "__grp__"
"""The prefix of a group file, which lists the files of a kernel."""
ELF: Final = b"\x7fELF"
ELF_SUFFIXES: Final = (".cubin", ".hsaco", ".so")
"""Suffixes of compiled code that begins with an ELF header."""

MAX_METADATA_BYTES: Final = 64 << 10
"""Limit of bytes of a kernel's metadata; Triton writes about 2 KiB."""
_NOT_OPTIONS: Final = frozenset(
    {
        *("hash", "target", "name", "triton_version"),
        # A path; the key has the content of the libraries.
        "extern_libs",
        # Results of the compilation.
        *("shared", "tmem_size", "global_scratch_size", "global_scratch_align", "tensordesc_meta"),
        *("profile_scratch_size", "profile_scratch_align"),
    }
)


def key_of(metadata: bytes) -> Key | None:
    """Return the key in the metadata of a Triton kernel; None for another file. Any author may have written it.

    Values are digests of many fields: a cache may have 10,000 kernels.
    """
    try:
        value = json.loads(metadata)
        if not isinstance(value, dict) or not {"hash", "target"} <= value.keys():
            return None
        variables = {name: each for name, each in value.items() if name.isupper()}
        options = {name: each for name, each in value.items() if name not in _NOT_OPTIONS and not name.isupper()}
        return {
            "the GPU": Factor(MissReason.OTHER_GPU, digest(value["target"])),
            "the version of Triton": Factor(MissReason.OTHER_VERSION, digest(value.get("triton_version"))),
            "the environment": Factor(MissReason.OTHER_ENVIRONMENT, digest(variables)),
            "an option": Factor(MissReason.OTHER_OPTIONS, digest(options)),
        }
    except (ValueError, RecursionError):
        return None


def environment_of(metadata: bytes) -> Mapping[str, object]:
    """Return the environment variables in the metadata of a Triton kernel; {} for any other file."""
    try:
        return {name: value for name, value in json.loads(metadata).items() if name.isupper()}
    except (ValueError, AttributeError, RecursionError):
        return {}


KEY_VARIABLES: Final = frozenset(
    {
        *("ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "AMDGCN_ENABLE_DUMP", "AMDGCN_USE_BUFFER_ATOMICS"),
        *("AMDGCN_USE_BUFFER_OPS", "DISABLE_LLVM_OPT", "DISABLE_MMA_V3", "DISABLE_MMA_V5", "DISABLE_PTXAS_OPT"),
        *("LLVM_ENABLE_TIMING", "LLVM_EXTRACT_DI_LOCAL_VARIABLES", "LLVM_IR_ENABLE_DUMP", "LLVM_PASS_PLUGIN_PATH"),
        *("MLIR_DISABLE_MULTITHREADING", "MLIR_DUMP_PATH", "MLIR_ENABLE_DIAGNOSTICS", "MLIR_ENABLE_DUMP"),
        *("MLIR_ENABLE_TIMING", "NVPTX_ENABLE_DUMP", "TRITON_CONSAN_INIT_ALLOCATIONS", "TRITON_DEFAULT_FP_FUSION"),
        *("TRITON_DISABLE_LINE_INFO", "TRITON_DUMP_MIR", "TRITON_ENABLE_ASAN", "TRITON_ENABLE_EXPERIMENTAL_CONSAN"),
        *("TRITON_ENABLE_LLVM_DEBUG", "TRITON_F32_DEFAULT", "TRITON_FORCE_DISABLE_FP_FUSION"),
        *("TRITON_HIP_USE_ASYNC_COPY", "TRITON_HIP_USE_BLOCK_PINGPONG", "TRITON_HIP_USE_COEXEC_SCHEDULER"),
        *("TRITON_HIP_USE_EXPERT_SCHEDULING", "TRITON_HIP_USE_IN_THREAD_TRANSPOSE", "TRITON_LLVM_DEBUG_ONLY"),
        *("TRITON_OVERRIDE_ARCH", "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY", "USE_IR_LOC"),
        *("TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY", "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT"),
        *("TRITON_PLUGIN_PATHS", "TRITON_PLUGIN_VERSION_CHECK"),
    }
)
"""Environment variables that are part of Triton's key if they are set (libtriton 3.9)."""
_METADATA: Final = re.compile(rf"(?P<entry>(?:.*/)?(?:{KEY})/(?P<kind>(?!{GROUP})[^/]+\.json))", re.DOTALL)
_OTHERS: Final = r"(?:params|manifest|metadata|resource_usage)\.json|.*\.autotune\.json"
"""Names that TileLang and quack have in directories with such a key."""
KERNEL: Final = folder(KEY, file(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,250}}\.(?:{'|'.join(SUFFIXES)})"))

TRITON: Final = Runtime(
    name="triton",
    title="Triton",
    variables=("TRITON_CACHE_DIR",),
    layout=(KERNEL,),
    marks=(folder(KEY, file(rf"(?!{GROUP}|{_OTHERS})[A-Za-z0-9_][A-Za-z0-9_.-]{{0,250}}\.json")),),
    # In other runtimes' directories too: only the content tells a kernel.
    entries=Entries(
        _METADATA,
        _METADATA,
        key_of,
        MAX_METADATA_BYTES,
        MissReason.OTHER_SOURCE,
        "Triton keys on the source, argument types and constants of each kernel, which it meets as it runs",
        environment=environment_of,
        key_variables=KEY_VARIABLES,
        by_content=True,
    ),
)
