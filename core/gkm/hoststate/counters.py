"""What the CSI process counts, in a file for the agent to export: that process serves no network and loads no library.

Below /run: a reboot begins anew, as Prometheus allows. The reader trusts nothing in it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout

BUCKET_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the buckets in seconds: a publish takes a few milliseconds, and kubelet waits two minutes at most."""

CODES: Final = frozenset(
    (
        *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
        *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
    )
)
"""The status codes of gRPC, and with that all labels that there can be."""

MAX_BYTES: Final = 64 << 10
_VERSION: Final = 1
_MAX_COUNT: Final = 1 << 53
"""What JSON's numbers hold exactly; at a thousand a second it takes 285,000 years to get there."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How long something took: `counts` of each bucket alone, the last of them above every bound, and their sum."""

    counts: tuple[int, ...] = (0,) * (len(BUCKET_BOUNDS) + 1)
    seconds: float = 0.0

    def with_observation(self, seconds: float) -> "Histogram":
        """Return this with one more observation."""
        bucket = bisect_left(BUCKET_BOUNDS, seconds)
        counts = (*self.counts[:bucket], self.counts[bucket] + 1, *self.counts[bucket + 1 :])
        return Histogram(counts, self.seconds + seconds)


PublishHistograms = Mapping[str, Histogram]
"""{code of gRPC: how long the publishes took that ended with it}."""


def path(layout: Layout) -> Path:
    """Return where the file lies."""
    return layout.run / "csi" / "counters.json"


def save(layout: Layout, publishes: PublishHistograms) -> None:
    """Replace the file in one step.

    Raises:
        OSError: the disk refused; the old content stands.
    """
    encoded = {
        code: {"counts": list(histogram.counts), "seconds": histogram.seconds} for code, histogram in publishes.items()
    }
    value = {"version": _VERSION, "bounds": list(BUCKET_BOUNDS), "publish": encoded}
    files.replace(path(layout), files.encode(value), durable=False)


def load(layout: Layout) -> PublishHistograms:
    """Return what was counted; nothing where there is no file.

    Raises:
        UnreadableState: the file was not written by us, or by another version of us.
    """
    where = path(layout)
    try:
        value = files.read_object(where, MAX_BYTES)
    except FileNotFoundError:
        return {}
    try:
        return _from_json(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableState(f"{where}: {type(error).__name__}: {str(error)[:200]}") from error


def _from_json(value: Mapping[str, Any]) -> PublishHistograms:
    if value["version"] != _VERSION or value["bounds"] != list(BUCKET_BOUNDS):
        raise ValueError("of another version")
    publishes = value["publish"]
    if not isinstance(publishes, dict) or not publishes.keys() <= CODES:
        raise ValueError("publish: counts something else than codes of gRPC")
    return {code: _histogram(encoded) for code, encoded in publishes.items()}


def _histogram(encoded: Mapping[str, Any]) -> Histogram:
    counts, seconds = encoded["counts"], encoded["seconds"]
    if not isinstance(counts, list) or len(counts) != len(BUCKET_BOUNDS) + 1:
        raise ValueError("counts: not one for each bucket")
    # A bool is an int to Python, and not to us.
    if any(type(count) is not int or not 0 <= count < _MAX_COUNT for count in counts):
        raise ValueError("counts: not all are counts")
    if type(seconds) not in (int, float) or not isfinite(seconds) or not 0 <= seconds < _MAX_COUNT:
        raise ValueError("seconds: no duration")
    return Histogram(tuple(counts), float(seconds))
