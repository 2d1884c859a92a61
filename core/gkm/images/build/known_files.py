"""Which files of a directory a runtime writes as its cache, by their paths alone. Pure.

A selection of gkm.images.build.tree for directories that may hold more than a cache: the files that a pod left in
its private layer. Files of another place or kind stay out, such as those of a home directory, locks, temporary files,
and vLLM's model lists and assets.

Sources: triton/runtime/cache.py (FileCacheManager: a directory for each key, base32 of a SHA-256 or its hexadecimal
form); vllm/compilation/backends.py and gkm.images.build.vllm for `torch_compile_cache/<hash>`.
"""

import re
from typing import Final

from gkm.images.build.vllm import AOT, ROOT

_KEY: Final = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}", re.ASCII)
_HASH: Final = re.compile(r"[0-9a-f]{8,128}", re.ASCII)
KERNEL_SUFFIXES: Final = frozenset({"json", "source", "ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco", "so"})
"""The kinds of files in the directory of a Triton kernel, and in that of its launcher."""
_TEMPORARY: Final = re.compile(r"tmp\.pid_.*|.*\.(?:tmp|lock|swp|part)", re.ASCII | re.DOTALL)


def is_cache_file(path: str, is_directory: bool) -> bool:  # noqa: FBT001 -- the form of a Selection
    """Return whether a path is that of a file of a Triton or vLLM cache, or of a directory that may hold one."""
    parts = path.split("/")
    if any(part.startswith(".") or _TEMPORARY.fullmatch(part) for part in parts):
        return False
    return _is_vllm(parts, is_directory) if parts[0] == ROOT else _is_kernel(parts, is_directory)


def _is_kernel(parts: list[str], is_directory: bool) -> bool:  # noqa: FBT001
    match parts:
        case [key]:
            return is_directory and _KEY.fullmatch(key) is not None
        case [_, name]:
            return not is_directory and name.rpartition(".")[2] in KERNEL_SUFFIXES
    return False


def _is_vllm(parts: list[str], is_directory: bool) -> bool:  # noqa: FBT001
    inside = parts[2:] if parts[1:2] == [AOT] else parts[1:]
    if not inside:
        return is_directory
    if _HASH.fullmatch(inside[0]) is None:
        return False
    return is_directory or len(inside) > 1
