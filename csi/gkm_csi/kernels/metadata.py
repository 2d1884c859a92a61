"""The metadata that Triton stores beside a kernel, reduced to what tells why two kernels have different keys. Pure.

Triton 3.x writes `<name>.json` into a directory named by the key (triton/compiler/compiler.py, `compile`). It holds the
options of the compilation, the environment variables that are part of the key, in capitals, and results. The source,
the argument types, the constants and the version of ptxas are parts of the key that it does not hold.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_BYTES: Final = 64 << 10
"""Triton writes about 2 KiB."""
GROUP: Final = "__grp__"
SUFFIX: Final = ".json"

_NOT_OPTIONS: Final = frozenset(
    {
        *("hash", "target", "name", "triton_version"),
        # A path; the key has the content of the libraries.
        "extern_libs",
        # Results of the compilation.
        *("shared", "tmem_size", "global_scratch_size", "global_scratch_align", "tensordesc_meta"),
        *("profile_scratch_size", "profile_scratch_align"),
    }
)


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """One kernel; values that are compared only, so they are digests: the files of many kernels may have 128 MB."""

    target: str
    version: str
    environment: str
    options: str


def is_metadata(name: str) -> bool:
    """Return whether a file of this name may be the metadata of a kernel."""
    return name.endswith(SUFFIX) and not name.startswith(GROUP)


def parse(raw: bytes) -> KernelMetadata | None:
    """Return the metadata in a file of any author; None for a file that is not Triton's."""
    try:
        value = json.loads(raw)
        if not isinstance(value, dict) or not {"hash", "target"} <= value.keys():
            return None
        return KernelMetadata(
            _digest(value["target"]),
            _digest(value.get("triton_version")),
            _digest({key: each for key, each in value.items() if _is_variable(key)}),
            _digest({key: each for key, each in value.items() if key not in _NOT_OPTIONS and not _is_variable(key)}),
        )
    except (ValueError, RecursionError):
        return None


def _is_variable(key: str) -> bool:
    return key.isupper()


def _digest(value: Mapping[str, Any] | object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
