"""TileLang: a directory for each kernel and for each binary, by version and processor. Pure.

Source: tilelang 0.1.15 (cache/kernel_cache.py, autotuner/param.py). The first use makes `kernels` and `.staging`, which
fails on a read-only mount without them. A hit of the autotuner runs the pickle `function.pkl`: its entries stay.
"""

from typing import Final

from gkm.runtimes.layout import FileKind, Place, file, folder
from gkm.runtimes.runtime import Runtime

_VERSION: Final = r"[0-9][A-Za-z0-9._-]{0,60}"
_PLATFORM: Final = r"(?:linux|darwin|win32)-[A-Za-z0-9._-]{1,40}"
_KEY: Final = r"[0-9a-f]{64}"
_STAGING: Final = folder(r"\.staging", file(r".+", FileKind.LEFTOVER))
_KERNEL_FILES: Final = (
    file(r"(?:device|host)_kernel\.(?:cu|cpp|py|hip)"),
    file(r"kernel\.(?:cubin|py)"),
    file(r"(?:kernel_lib|executable|[a-z_]{0,40}launcher[a-z_]{0,40})\.so"),
    file(r"(?:params|manifest|resource_usage)\.json"),
)


def _kernels(*kernel_files: Place) -> Place:
    kernel = folder(_KEY, *kernel_files, needs=(r"manifest\.json", r"params\.json", r".+\.(?:so|cubin|py)"))
    return folder(r"kernels", kernel, _STAGING)


_BINARIES: Final = folder(
    r"cuda-binaries",
    folder(_KEY, file(r"kernel\.cubin"), file(r"metadata\.json"), needs=(r"kernel\.cubin", r"metadata\.json")),
    _STAGING,
)

TILELANG: Final = Runtime(
    name="tilelang",
    title="TileLang",
    variables=("TILELANG_CACHE_DIR",),
    layout=(
        folder(
            _VERSION,
            folder(
                _PLATFORM,
                *(_kernels(*_KERNEL_FILES), _STAGING, folder(r"autotuner", file(r".+", FileKind.PROGRAM))),
            ),
            *(_BINARIES, _STAGING),
        ),
    ),
    marks=(folder(_VERSION, folder(_PLATFORM, _kernels(file(r"manifest\.json"))), _BINARIES),),
    empty=((rf"{_VERSION}/{_PLATFORM}", "kernels"), (rf"{_VERSION}/{_PLATFORM}", ".staging")),
)
