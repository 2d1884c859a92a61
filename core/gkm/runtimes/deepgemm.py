"""DeepGEMM: a directory for each kernel, in two forms. Pure.

Sources: DeepJIT as sgl-deep-gemm 0.2.5 and vLLM 0.33 have it, and DeepGEMM before it. A hit of DeepJIT asks for the
hidden file `.committed` alone, which is written last; before DeepJIT one file without the other ends the process. A
miss writes into the first directory of the variable.
"""

from typing import Final

from gkm.runtimes.layout import FileKind, file, folder
from gkm.runtimes.runtime import Runtime

_KEY: Final = r"[A-Za-z0-9_]{1,120}\.[0-9a-f]{32}"
_CODE: Final = file(r"kernel\.cubin")
_SOURCE: Final = file(r"kernel\.cu")
_OLD: Final = folder(rf"kernel\.{_KEY}", _CODE, _SOURCE, needs=(r"kernel\.cu", r"kernel\.cubin"))
_NEW: Final = folder(
    _KEY,
    *(_CODE, _SOURCE, file(r"meta\.json"), file(r"\.committed")),
    needs=(r"kernel\.cu", r"kernel\.cubin", r"meta\.json", r"\.committed"),
)

DEEPGEMM: Final = Runtime(
    name="deepgemm",
    title="DeepGEMM",
    variables=("DG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR"),
    layout=(
        folder(r"cache", _OLD, _NEW),
        folder(r"tmp", file(r".+", FileKind.LEFTOVER)),
        folder(r"locks", file(r".+", FileKind.LEFTOVER)),
    ),
    marks=(folder(r"cache", folder(rf"(?:kernel\.)?{_KEY}", _CODE)),),
    needs_private_layer=True,
)
