"""SGLang: its own modules, and the root that has the caches of other runtimes inside. Pure.

Source: sglang 0.5.23. The root is the default of the variables of Triton, TorchInductor, TileLang, FlashInfer and
DeepGEMM; `jit` follows only the default of the root. DeepGEMM's locks are opened for writing on each start.
"""

from typing import Final

from gkm.runtimes.deepgemm import DEEPGEMM
from gkm.runtimes.flashinfer import FLASHINFER
from gkm.runtimes.inductor import GRAPHS
from gkm.runtimes.layout import FileKind, Place, file, folder
from gkm.runtimes.quack import QUACK
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.tilelang import TILELANG
from gkm.runtimes.triton import TRITON
from gkm.runtimes.vllm import COMPILERS, RANK

_STAMP: Final = r"[0-9a-f]{16}"
_MODULE: Final = folder(
    rf"deps-{_STAMP}",
    *(file(r"sgl_deps\.json"), file(r"[A-Za-z0-9_]{1,200}\.so")),
    needs=(r"sgl_deps\.json", r".+\.so"),
)
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,120}"
_MODULES: Final = (folder(r"sm[0-9]{2,3}[af]?|gfx[0-9a-f]{3,4}", folder(_NAME, folder(rf"build-{_STAMP}", _MODULE))),)
_TUNED: Final = folder(
    _STAMP,
    file(r"rank_tp[0-9]{1,4}_pp[0-9]{1,4}_dp[0-9]{1,4}\.json"),
    file(r".+_gpu.+\.json", FileKind.MACHINE),
    needs=(r"rank_tp([0-9]{1,4})_pp([0-9]{1,4})_dp([0-9]{1,4})\.json",),
)
_VERSION: Final = r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,60}"
_AUTOTUNE: Final = folder(r"flashinfer", folder(r"autotune", folder(_VERSION, folder(_VERSION, _TUNED))))
_INDEX: Final = file(r"sglang_compile_cache\.py")


def _graphs(*inside: Place) -> Place:
    # A graph that the index names and that is missing ends the start.
    model = folder(_NAME, *inside, needs=(r"sglang_compile_cache\.py", r"inductor_cache"))
    return folder(r"torch_compile_cache", folder(r"[0-9a-f]{8,128}", folder(RANK, model)))


SGLANG_JIT: Final = Runtime(
    name="sglangjit",
    title="SGLang's modules",
    variables=("SGLANG_JIT_CACHE_DIR",),
    layout=_MODULES,
    marks=_MODULES,
)
SGLANG: Final = Runtime(
    name="sglang",
    title="SGLang",
    variables=("SGLANG_CACHE_DIR",),
    layout=(
        _graphs(_INDEX, *COMPILERS),
        _AUTOTUNE,
        folder(r"cute_aot", *QUACK.layout),
        folder(r"triton", *TRITON.layout),
        folder(r"inductor", *GRAPHS),
        folder(r"tilelang", *TILELANG.layout),
        folder(r"deep_gemm", *DEEPGEMM.layout),
        folder(r"jit", file(r".+", FileKind.UNMOVABLE)),
        *FLASHINFER.layout,
    ),
    marks=(_graphs(_INDEX), _AUTOTUNE, folder(r"cute_aot", *QUACK.marks), folder(r"jit", *_MODULES)),
    needs_private_layer=True,
    empty=tuple((f"tilelang/{parent}", name) for parent, name in TILELANG.empty),
    unmovable=f"{FLASHINFER.unmovable}; jit follows SGLANG_JIT_CACHE_DIR: build it by itself",
)
