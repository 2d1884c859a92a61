"""Helion: the best configuration of each kernel, with the caches of Triton and CuTe DSL inside. Pure.

Source: helion 1.5.1. The key has the source and the device, and not the versions of Helion, Triton and torch. The
number of the device is a part of the path.
"""

from typing import Final

from gkm.runtimes.layout import file, folder
from gkm.runtimes.runtime import Runtime
from gkm.runtimes.triton import TRITON

_KEY: Final = r"[0-9a-f]{16,64}"
_CONFIGURATION: Final = file(rf"{_KEY}\.best_config", needs=())
_FUNCTION: Final = file(rf"cute_dsl_{_KEY}\.mlir", needs=(r"\.json",))

HELION: Final = Runtime(
    name="helion",
    title="Helion",
    variables=("HELION_CACHE_DIR",),
    layout=(
        _CONFIGURATION,
        folder(r"triton", folder(r"[0-9]{1,3}", *TRITON.layout)),
        folder(r"cute", folder(r"[0-9]{1,3}", _FUNCTION, file(rf"cute_dsl_{_KEY}\.json"))),
    ),
    marks=(_CONFIGURATION,),
    versions=("helion", "triton", "torch"),
    # No file has these versions, and a capture has no user to state them.
    captured=False,
)
