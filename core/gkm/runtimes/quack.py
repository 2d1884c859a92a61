"""Quack and SGLang's cute_aot, which store in one form: an object file and its lock, by a fingerprint. Pure.

Sources: quack-kernels 0.6.5 (cache/jit.py, autotuner.py), sglang 0.5.23 (kernels/jit/cute_aot_cache.py). A hit opens
the lock with O_CREAT, which fails on a read-only mount unless the file exists. Fingerprints have the sources and
versions, so one directory serves both programs.
"""

from typing import Final

from gkm.runtimes.layout import Place, file, folder
from gkm.runtimes.runtime import Runtime

_HASH: Final = r"[0-9a-f]{64}"
_OBJECT: Final = file(rf"{_HASH}\.o", needs=(r"\.lock",))
_FILES: Final = (_OBJECT, file(rf"{_HASH}\.lock"))


def _fingerprint(*inside: Place) -> Place:
    return folder(_HASH, *inside, folder(r"[A-Za-z][A-Za-z0-9_]{0,80}", *inside))


_TUNED: Final = folder(r"[A-Z2-7]{52}", file(r"[A-Za-z0-9_]{1,150}\.autotune\.json", needs=()))

QUACK: Final = Runtime(
    name="quack",
    title="quack",
    variables=("QUACK_CACHE_DIR", "SGLANG_CUTE_AOT_CACHE_DIR"),
    layout=(_fingerprint(*_FILES), _TUNED),
    marks=(_fingerprint(_OBJECT),),
)
