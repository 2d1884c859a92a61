"""The kernels that programs compiled beside mounted caches: found by the CSI process, reported by the agent.

The file lies below /run and has the volumes that are mounted now. The reader trusts no value in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gkm.hoststate import files, names
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName


class MissReason(StrEnum):
    """Why a cache did not have a kernel, as far as the metadata of Triton tells (docs/decisions/0021)."""

    NO_SUCH_KERNEL = "NoSuchKernel"
    OTHER_GPU = "OtherGPU"
    OTHER_VERSION = "OtherVersion"
    OTHER_ENVIRONMENT = "OtherEnvironment"
    OTHER_OPTIONS = "OtherOptions"
    OTHER_SOURCE = "OtherSource"
    OTHER_PATH = "OtherPath"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class KernelMissCounts:
    """The kernels that one program compiled: their number by reason, beside `mounted` kernels of the cache.

    If not `complete`, both numbers are lower bounds: the volume exceeds the limits of a read.
    """

    reasons: Mapping[MissReason, int] = field(default_factory=dict)
    mounted: int = 0
    complete: bool = True

    @property
    def kernels(self) -> int:
        """Return the number of the kernels that were compiled."""
        return sum(self.reasons.values())


MAX_BYTES: Final = 1 << 20
_MAX_VOLUMES: Final = 4096
_MAX_COUNT: Final = 1 << 31


def save(layout: Layout, volumes: Mapping[str, KernelMissCounts]) -> None:
    """Replace the file in one step; raises OSError."""
    value = {
        volume: {"reasons": dict(found.reasons), "mounted": found.mounted, "complete": found.complete}
        for volume, found in list(volumes.items())[:_MAX_VOLUMES]
    }
    files.replace(layout.kernel_misses, files.encode({"volumes": value}), durable=False)


def load(layout: Layout) -> Mapping[str, KernelMissCounts]:
    """Return the misses of each volume that has any; {} without a file.

    Raises:
        UnreadableState: the file is invalid.
    """
    return files.load(layout.kernel_misses, _from_json, MAX_BYTES) or {}


def counts(encoded: object) -> Mapping[MissReason, int]:
    """Return numbers by reason, as JSON has them.

    Raises:
        ValueError: the text has another form.
    """
    if not isinstance(encoded, dict) or not all(map(_is_count, encoded.values())):
        raise ValueError("reasons: not numbers by reason")
    return {MissReason(reason): count for reason, count in encoded.items()}


def _from_json(value: Mapping[str, Any]) -> Mapping[str, KernelMissCounts]:
    volumes = value["volumes"]
    if not isinstance(volumes, dict) or len(volumes) > _MAX_VOLUMES:
        raise ValueError("volumes: not misses by volume")
    return {_volume(volume): _misses(encoded) for volume, encoded in volumes.items()}


def _volume(name: str) -> str:
    try:
        return names.volume_id(name)
    except InvalidName as error:
        raise ValueError(str(error)) from error


def _misses(encoded: Mapping[str, Any]) -> KernelMissCounts:
    mounted = encoded["mounted"]
    if not _is_count(mounted):
        raise ValueError("mounted: not a number")
    return KernelMissCounts(counts(encoded["reasons"]), mounted, complete=encoded["complete"] is True)


def _is_count(value: object) -> bool:
    # bool is a subclass of int, and not a count.
    return type(value) is int and 0 <= value < _MAX_COUNT
