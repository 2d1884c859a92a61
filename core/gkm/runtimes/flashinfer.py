"""FlashInfer: operators of CuTe DSL, cubins and results of tuning; operators of nvcc cannot move. Pure.

Source: flashinfer-python 0.7.2. Each hit of an operator that nvcc compiled runs ninja, which compiles it again at
another path, or where a file lost its time: image layers have no times. The import appends to a log below the base.
"""

from typing import Final

from gkm.runtimes.layout import FileKind, file, folder, nested
from gkm.runtimes.runtime import Runtime

_VERSION: Final = r"[0-9][A-Za-z0-9.+_-]{0,40}"
_ARCH: Final = r"[0-9]{2,3}[af]?(?:_[0-9]{2,3}[af]?){0,8}"
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}"
_REBUILT: Final = file(r".+", FileKind.UNMOVABLE)
_CUTE: Final = folder(
    r"[A-Za-z0-9_]{1,200}_cute_dsl",
    file(r"[A-Za-z0-9_]{1,200}\.o"),
    file(r"meta\.json"),
    needs=(r".+\.o", r"meta\.json"),
)
_OPERATORS: Final = (
    folder(r"cached_ops", _CUTE, folder(r"tmp", file(r".+", FileKind.LEFTOVER)), folder(_NAME, _REBUILT)),
    folder(r"generated", _REBUILT),
    file(r"flashinfer_jit\.log", FileKind.MACHINE),
)
_CUBIN: Final = file(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.(?:cubin|so)", needs=())
_CUBINS: Final = nested(_NAME, 6, _CUBIN, file(r"checksums\.txt|[A-Za-z0-9_]{1,100}\.h"))
_MANIFEST: Final = folder(
    r"v2",
    folder(
        r"[0-9a-f]{16}",
        *(file(r"manifest\.json"), folder(r"entries", file(r"[0-9a-f]{24}\.json"))),
        needs=(r"manifest\.json",),
    ),
)
_TUNED: Final = (file(r"(?!\.)[A-Za-z0-9_.-]{1,120}\.json", needs=()), _MANIFEST)

FLASHINFER: Final = Runtime(
    name="flashinfer",
    title="FlashInfer",
    variables=("FLASHINFER_WORKSPACE_BASE",),
    layout=(
        folder(
            r"\.cache",
            folder(
                r"flashinfer",
                folder(r"cubins", *_CUBINS),
                folder(r"autotune", *_TUNED),
                folder(_VERSION, *_OPERATORS, folder(_ARCH, *_OPERATORS)),
            ),
        ),
    ),
    marks=(
        folder(
            r"\.cache",
            folder(
                r"flashinfer",
                folder(r"cubins", *nested(_NAME, 6, _CUBIN)),
                folder(r"autotune", _MANIFEST),
                folder(_VERSION, _OPERATORS[0], folder(_ARCH, _OPERATORS[0])),
            ),
        ),
    ),
    needs_private_layer=True,
    unmovable="ninja compiles operators of nvcc again at another path, and where files lost their times",
)
