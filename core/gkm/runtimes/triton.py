"""Triton: a directory for each kernel, and one for each launcher. Pure.

Sources: triton/runtime/cache.py (FileCacheManager), triton/compiler/compiler.py, triton/backends, 3.0 to 3.9. A key is
the base32 or hexadecimal form of a SHA-256.
"""

from typing import Final

from gkm.runtimes.layout import file, folder
from gkm.runtimes.runtime import Runtime

SUFFIXES: Final = (
    *("json", "source", "ttir", "ttgir", "llir", "so"),
    *("ptx", "cubin"),
    *("amdgcn", "hsaco"),
    *("spv", "zebin"),
)
"""The stages of a compilation: of every GPU, of NVIDIA's, of AMD's, of Intel's."""
KEY: Final = r"[A-Z2-7]{52}|[0-9a-f]{64}"
GROUP: Final = "__grp__"
"""The prefix of a group file, which lists the files of a kernel."""
ELF: Final = b"\x7fELF"
ELF_SUFFIXES: Final = (".cubin", ".hsaco", ".so")
"""The files of code, which begin with ELF."""

TRITON: Final = Runtime(
    name="triton",
    title="Triton",
    variables=("TRITON_CACHE_DIR",),
    layout=(folder(KEY, file(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,250}}\.(?:{'|'.join(SUFFIXES)})")),),
    marks=(folder(KEY, file(rf"(?!{GROUP})[A-Za-z0-9_][A-Za-z0-9_.-]{{0,250}}\.json")),),
)
