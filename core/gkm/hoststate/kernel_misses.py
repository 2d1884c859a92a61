"""The entries that programs compiled beside mounted caches: found by the CSI process, reported by the agent.

The file lies below /run and has the volumes that are mounted now. The reader trusts no value in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from gkm.hoststate import files, names
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName
from gkm.runtimes import BY_NAME
from gkm.runtimes.keys import MAX_TEXT, MissReason, printable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KernelMissCounts:
    """The entries of one runtime that a program compiled, by reason; `mounted` is the number of entries in the cache.

    `difference` names the first factor that differs, in a text for people; the pod may have written any part of it. If
    not `complete`, both numbers are lower bounds: the volume exceeds the limits of a read.
    """

    reasons: Mapping[MissReason, int] = field(default_factory=dict)
    mounted: int = 0
    complete: bool = True
    difference: str = ""

    @property
    def kernels(self) -> int:
        """Return the number of entries (kernels) that the program compiled."""
        return sum(self.reasons.values())


RuntimeMisses = Mapping[str, KernelMissCounts]
"""The misses of one volume, by the name of the runtime."""
MAX_BYTES: Final = 4 << 20
_MAX_VOLUMES: Final = 4096
_MAX_COUNT: Final = 1 << 31


def save(layout: Layout, volumes: Mapping[str, RuntimeMisses]) -> None:
    """Replace the file with the compiled entries of each volume atomically; raises OSError."""
    value = {
        volume: {
            runtime: {
                "reasons": {reason: count for reason, count in found.reasons.items() if count},
                "mounted": found.mounted,
                "complete": found.complete,
                "difference": found.difference,
            }
            for runtime, found in runtimes.items()
        }
        for volume, runtimes in list(volumes.items())[:_MAX_VOLUMES]
    }
    files.replace(layout.kernel_misses, files.encode({"volumes": value}), durable=False)


def load(layout: Layout) -> Mapping[str, RuntimeMisses]:
    """Return the compiled entries by volume from their file; {} if the file does not exist.

    Raises:
        UnreadableState: the file is invalid.
    """
    return files.load(layout.kernel_misses, _from_json, MAX_BYTES) or {}


def counts(encoded: object) -> Mapping[MissReason, int]:
    """Return numbers of compiled entries by reason from decoded JSON.

    Raises:
        ValueError: the text has another form.
    """
    if not isinstance(encoded, dict) or not all(map(_is_count, encoded.values())):
        raise ValueError("reasons: not numbers by reason")
    return {MissReason(reason): count for reason, count in encoded.items()}


def by_runtime(encoded: object, read: Callable[[Any], T]) -> Mapping[str, T]:
    """Return a mapping by runtime, whose values `read` converts from decoded JSON.

    Raises:
        ValueError: the JSON has another form.
    """
    if not isinstance(encoded, dict) or not encoded.keys() <= BY_NAME.keys():
        raise ValueError("not values by runtime")
    return {runtime: read(value) for runtime, value in encoded.items()}


def _from_json(value: Mapping[str, Any]) -> Mapping[str, RuntimeMisses]:
    volumes = value["volumes"]
    if not isinstance(volumes, dict) or len(volumes) > _MAX_VOLUMES:
        raise ValueError("volumes: not misses by volume")
    return {_volume(volume): by_runtime(encoded, _misses) for volume, encoded in volumes.items()}


def _volume(name: str) -> str:
    try:
        return names.volume_id(name)
    except InvalidName as error:
        raise ValueError(str(error)) from error


def _misses(encoded: Mapping[str, Any]) -> KernelMissCounts:
    mounted = encoded["mounted"]
    if not _is_count(mounted):
        raise ValueError("mounted: not a number")
    difference = encoded["difference"]
    if not isinstance(difference, str) or printable(difference, MAX_TEXT) != difference:
        raise ValueError("difference: not a short text")
    return KernelMissCounts(counts(encoded["reasons"]), mounted, encoded["complete"] is True, difference)


def _is_count(value: object) -> bool:
    # bool is a subclass of int, and not a count.
    return type(value) is int and 0 <= value < _MAX_COUNT
