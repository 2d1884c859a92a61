"""The metrics of the agent (docs/reference/agent-health.md; their names are API), and the page that exposes them.

Label values come from fixed sets, never from a user, so the page has a bounded size. Any thread may change a value of
prometheus_client.
"""

import collections
import re
from collections.abc import Iterable, Mapping
from typing import Final

from gkm.api.errors import Reason
from gkm.api.nodes import NodeStatus
from gkm.gpus.values import Inventory
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeRecord
from gkm.probes.messages import Page
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

# It would add a second series per counter, with the time of its creation.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1200)

PULL_SECONDS: Final = Histogram(
    "gkm_pull_seconds",
    "Time that a stage of a pull took: resolve, describe, download or extract, whether it went well or not.",
    ["stage"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
PULL_BYTES: Final = Counter(
    "gkm_pull_bytes_total", "Bytes of blobs that came from registries, also those of pulls that failed.",
    registry=REGISTRY,
)  # fmt: skip
VERIFY_SECONDS: Final = Histogram(
    "gkm_verify_seconds",
    "Time that verifying an image's signatures took: verified, admitted (allowed unverified), refused or error.",
    ["result"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
CACHE_STATE: Final = Gauge("gkm_cache_state", "Caches of this node in a state.", ["state"], registry=REGISTRY)
MOUNTS: Final = Gauge("gkm_mounts", "Volumes of pods on this node.", ["mode"], registry=REGISTRY)
INCOMPATIBLE: Final = Counter(
    "gkm_incompatible_total", "Caches that were found to fit no GPU of this node.", ["reason"], registry=REGISTRY
)
STORE_BYTES: Final = Gauge("gkm_store_bytes", "Bytes of the files of all entries of the store.", registry=REGISTRY)
GC_BYTES: Final = Counter("gkm_gc_bytes_total", "Bytes of entries that were collected.", registry=REGISTRY)
NVML_ERRORS: Final = Counter(
    "gkm_nvml_errors_total", "Calls to a GPU's driver that failed, one each reading.", ["call"], registry=REGISTRY
)
API_REQUESTS: Final = Counter(
    "gkm_api_requests_total", "Answers of the Kubernetes API; code none: there was none.", ["verb", "code"],
    registry=REGISTRY,
)  # fmt: skip

READ_ONLY: Final = "read-only"
PRIVATE: Final = "private"
MODES: Final = (READ_ONLY, PRIVATE)
"""The modes of mounts; an empty volume is private."""

OTHER: Final = "other"
_CALL = re.compile(r"(?:nvml|amdsmi)[A-Za-z0-9_]{1,60}", re.ASCII)
_MAX_CALLS = 64
_calls: set[str] = set()

Statuses = Mapping[str | None, NodeStatus]
Finding = tuple[str | None, str, str, str]
"""A cache that fits no GPU: scope, name, digest and reason."""


def count_incompatible(reason: str) -> None:
    """Count a cache that fits no GPU."""
    INCOMPATIBLE.labels(reason if reason in frozenset(Reason) else OTHER).inc()


class ReconcileMetrics:
    """The metrics of reconcile passes. It remembers the incompatible caches, so that each finding counts once."""

    def __init__(self) -> None:
        self._incompatible: frozenset[Finding] = frozenset()

    def record(self, statuses: Statuses, *, mounts: Iterable[VolumeRecord], store_bytes: int) -> None:
        """Record the result of one pass."""
        caches = [(scope, name, cache) for scope, status in statuses.items() for name, cache in status.caches.items()]
        counts = collections.Counter(cache.state for *_, cache in caches)
        for state in CacheState:
            CACHE_STATE.labels(state.value).set(counts[state.value])
        modes = collections.Counter(PRIVATE if mount.is_private else READ_ONLY for mount in mounts)
        for mode in MODES:
            MOUNTS.labels(mode).set(modes[mode])
        STORE_BYTES.set(store_bytes)
        found = frozenset(
            (scope, name, cache.digest or "", cache.reason)
            for scope, name, cache in caches
            if cache.state == CacheState.INCOMPATIBLE.value
        )
        for *_, reason in found - self._incompatible:
            count_incompatible(reason)
        self._incompatible = found


def gpus_read(inventory: Inventory) -> None:
    """Count the failed calls in one reading of the GPUs."""
    # "" stands for an error that names no call.
    whole = (error.partition(":")[0] for error in inventory.errors)
    for call in (*whole, *(fault.call for gpu in inventory.gpus for fault in gpu.faults)):
        known = call in _calls or (_CALL.fullmatch(call) is not None and len(_calls) < _MAX_CALLS)
        if known:
            _calls.add(call)
        NVML_ERRORS.labels(call if known else OTHER).inc()


def api_answered(verb: str, status: int) -> None:
    """Count a response of the Kubernetes API; status 0 means that no response came."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return all metrics in the text format of Prometheus."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)
