"""TorchInductor: graphs, generated code, and Triton's cache of each GPU. Pure.

Sources: torch/_inductor/codecache.py, torch/_inductor/runtime/cache_dir_utils.py,
torch/_functorch/_aot_autograd/autograd_cache.py, torch/_inductor/runtime/autotune_cache.py, 2.15. docs/formats.md
describes each path.
"""

from typing import Final

from gkm.runtimes.layout import FileKind, Layout, file, folder
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.triton import TRITON

_SHARD: Final = r"[a-z0-9]{2}"
_KEY: Final = r"[a-z2-7]{52}"
"""The base32 form of a SHA-256, behind a letter for its kind."""
_CONTENT: Final = r"[a-z0-9]{1,64}"
_FXGRAPH: Final = folder(r"fxgraph", folder(_SHARD, folder(_KEY, file(_CONTENT))))
_AUTOGRAD: Final = folder(r"aotautograd", folder(_KEY, file(_CONTENT)))
_CODE: Final = r"[a-z0-9_]{8,140}(?:\.[A-Za-z0-9_-]{1,40}){1,4}"
"""Generated code and what is compiled from it: `c<hash>.py`, `.cpp`, `.so`, `.best_config`, `.kernel_perf`…"""

GRAPHS: Final[Layout] = (
    _FXGRAPH,
    _AUTOGRAD,
    folder(r"triton", folder(r"[0-9]{1,3}", *TRITON.layout)),
    folder(r"locks", file(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.lock")),
    folder(_SHARD, file(_CODE)),
)
"""The directory of the cache as other runtimes have it inside of their own."""

INDUCTOR: Final = Runtime(
    name="inductor",
    title="TorchInductor",
    variables=("TORCHINDUCTOR_CACHE_DIR",),
    # A process may use one directory for Triton too.
    layout=(*GRAPHS, *TRITON.layout, file(r"[^.].*", FileKind.ARTIFACTS)),
    marks=(_FXGRAPH, _AUTOGRAD),
)
