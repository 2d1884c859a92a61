"""TVM-FFI: extension modules that ninja builds; they cannot move. Pure.

Source: apache-tvm-ffi 0.1.15. A hit takes a lock that it must write: on a read-only mount it waits forever. With a
private layer ninja compiles again, because the layers of an image have no file times.
"""

from typing import Final

from gkm.runtimes.layout import FileKind, file, folder
from gkm.runtimes.runtime import Runtime

_MODULE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,120}_[0-9a-f]{16}"
_REBUILT: Final = FileKind.UNMOVABLE

TVM_FFI: Final = Runtime(
    name="tvmffi",
    title="TVM-FFI",
    variables=("TVM_FFI_CACHE_DIR",),
    layout=(
        folder(_MODULE, file(r".+", _REBUILT)),
        file(r"libtorch_c_dlpack_addon_torch[A-Za-z0-9.-]{1,60}\.so", _REBUILT),
    ),
    marks=(folder(_MODULE, file(r"build\.ninja")),),
    unmovable="a hit on a read-only mount waits for a lock for ever, and with a private layer ninja compiles again",
)
