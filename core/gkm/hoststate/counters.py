"""The counters of the CSI process, in a file that the agent exports: the CSI process serves no network.

The file lies below /run: a reboot resets it, as Prometheus allows. The reader trusts no value in it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Final

from gkm.hoststate import files, kernel_misses
from gkm.hoststate.kernel_misses import RuntimeMisses
from gkm.hoststate.layout import Layout
from gkm.runtimes.keys import MissReason

BUCKET_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets in seconds: a publish takes a few milliseconds, and kubelet waits two minutes at most."""

CODES: Final = frozenset(
    (
        *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
        *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
    )
)
"""The gRPC status codes: the only values of the metric's label `code`."""

MAX_BYTES: Final = 64 << 10
_VERSION: Final = 1
_MAX_COUNT: Final = 1 << 53
"""The largest integers that JSON numbers hold exactly; at a thousand a second a counter takes 285,000 years."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations: the number in each bucket (not cumulative), and their sum in seconds.

    The last bucket has no upper bound.
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKET_BOUNDS) + 1)
    seconds: float = 0.0

    def with_observation(self, seconds: float) -> "Histogram":
        """Return a histogram with one more observation."""
        bucket = bisect_left(BUCKET_BOUNDS, seconds)
        counts = (*self.counts[:bucket], self.counts[bucket] + 1, *self.counts[bucket + 1 :])
        return Histogram(counts, self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class EndedLayers:
    """Unmounted private layers above a cache: how many the program left empty, and how many it wrote to.

    A kernel that the program finds in the cache writes no file; a kernel that the cache lacks is compiled into the
    layer. `written_bytes` is the size of the layers at their end.
    """

    empty: int = 0
    written: int = 0
    written_bytes: int = 0

    def with_layer(self, used_bytes: int) -> "EndedLayers":
        """Return the numbers with one more unmounted layer, which used this many bytes."""
        if used_bytes <= 0:
            return replace(self, empty=self.empty + 1)
        return replace(self, written=self.written + 1, written_bytes=self.written_bytes + used_bytes)


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """All counters of a node's CSI driver: publishes, private layers, compiled kernels, volumes without a cache."""

    publishes: "PublishHistograms" = field(default_factory=dict)
    layers: EndedLayers = EndedLayers()
    kernel_misses: Mapping[str, Mapping[MissReason, int]] = field(default_factory=dict)
    """Entries that programs compiled although a cache was mounted, in unmounted volumes, by runtime and reason."""
    without_cache: int = 0
    """Unmounted volumes that had started without a cache and that the program wrote to."""

    def with_layer(self, used_bytes: int, misses: RuntimeMisses) -> "NodeCounters":
        """Return the counters after one more unmounted layer, with the entries that were compiled into it."""
        summed = {
            **self.kernel_misses,
            **{name: _sum(self.kernel_misses.get(name, {}), found.reasons) for name, found in misses.items()},
        }
        return replace(self, layers=self.layers.with_layer(used_bytes), kernel_misses=summed)


PublishHistograms = Mapping[str, Histogram]
"""{gRPC code: durations of the publishes that ended with it}."""


def save(layout: Layout, counted: NodeCounters) -> None:
    """Replace the file with the CSI driver's counters atomically.

    Raises:
        OSError: a write failed; the old content stays.
    """
    encoded = {
        code: {"counts": list(histogram.counts), "seconds": histogram.seconds}
        for code, histogram in counted.publishes.items()
    }
    layers = asdict(counted.layers)
    value = {"version": _VERSION, "bounds": list(BUCKET_BOUNDS), "publish": encoded, "layers": layers}
    value["withoutCache"] = counted.without_cache
    value["runtimeMisses"] = {name: dict(reasons) for name, reasons in counted.kernel_misses.items()}
    files.replace(layout.counters, files.encode(value), durable=False)


def load(layout: Layout) -> NodeCounters:
    """Return the CSI driver's counters from their file; zeros if the file does not exist.

    Raises:
        UnreadableState: the file is invalid, or of another version.
    """
    return files.load(layout.counters, _from_json, MAX_BYTES) or NodeCounters()


def _from_json(value: Mapping[str, Any]) -> NodeCounters:
    if value["version"] != _VERSION or value["bounds"] != list(BUCKET_BOUNDS):
        raise ValueError("the counters are of another version of GKM")
    publishes = value["publish"]
    if not isinstance(publishes, dict) or not publishes.keys() <= CODES:
        raise ValueError("publish: a key is not a gRPC code")
    histograms = {code: _histogram(encoded) for code, encoded in publishes.items()}
    # A process of an earlier version, which this one replaces, wrote no such field.
    misses = kernel_misses.by_runtime(value.get("runtimeMisses", {}), kernel_misses.counts)
    if not _is_count(without_cache := value.get("withoutCache", 0)):
        raise ValueError("withoutCache: not a count")
    return NodeCounters(histograms, _layers(value.get("layers", {})), misses, without_cache)


def _sum(one: Mapping[MissReason, int], other: Mapping[MissReason, int]) -> Mapping[MissReason, int]:
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in MissReason}


def _layers(encoded: object) -> EndedLayers:
    if not isinstance(encoded, dict) or not encoded.keys() <= set(EndedLayers.__slots__):
        raise ValueError("layers: not counts of layers")
    if not all(map(_is_count, encoded.values())):
        raise ValueError("layers: not all are counts")
    return EndedLayers(**encoded)


def _histogram(encoded: Mapping[str, Any]) -> Histogram:
    counts, seconds = encoded["counts"], encoded["seconds"]
    if not isinstance(counts, list) or len(counts) != len(BUCKET_BOUNDS) + 1:
        raise ValueError("counts: their number differs from the number of buckets")
    if not all(map(_is_count, counts)):
        raise ValueError("counts: not all are counts")
    if type(seconds) not in (int, float) or not isfinite(seconds) or not 0 <= seconds < _MAX_COUNT:
        raise ValueError("seconds: not a duration")
    return Histogram(tuple(counts), float(seconds))


def _is_count(value: object) -> bool:
    # bool is a subclass of int, and not a count.
    return type(value) is int and 0 <= value < _MAX_COUNT
