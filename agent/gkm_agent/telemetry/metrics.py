"""The metrics of the agent (docs/reference/agent-health.md; their names are API), and the page that exposes them.

Label values come from fixed sets, never from a user, so the page has a bounded size. Any thread may change a value of
prometheus_client.
"""

import collections
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Final

from gkm.api.errors import Reason
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.gpus.values import Inventory
from gkm.hoststate.command_line import installed_version
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
NOT_READY: Final = Gauge(
    "gkm_cache_not_ready", "Caches of this node that are not Ready and have a reason.", ["state", "reason"],
    registry=REGISTRY,
)  # fmt: skip
NO_CACHE_FOR_HARDWARE: Final = Gauge(
    "gkm_no_cache_for_hardware",
    "Caches that fit no GPU of this node, and that a pod waits for (waiting) or started without (started).",
    ["pods"],
    registry=REGISTRY,
)
MOUNTS: Final = Gauge("gkm_mounts", "Volumes of pods on this node.", ["mode"], registry=REGISTRY)
INCOMPATIBLE: Final = Counter(
    "gkm_incompatible_total", "Caches that were found to fit no GPU of this node.", ["reason"], registry=REGISTRY
)
STORE_BYTES: Final = Gauge("gkm_store_bytes", "Bytes of the files of all entries of the store.", registry=REGISTRY)
GC_BYTES: Final = Counter("gkm_gc_bytes_total", "Bytes of entries that were collected.", registry=REGISTRY)
NVML_ERRORS: Final = Counter(
    "gkm_nvml_errors_total", "Calls to a GPU's driver that failed, one each reading.", ["call"], registry=REGISTRY
)
LINK_ERRORS: Final = Counter(
    "gkm_nvlink_errors_total", "Errors of the NVLinks of this node: replays and recoveries.", ["kind"],
    registry=REGISTRY,
)  # fmt: skip
API_REQUESTS: Final = Counter(
    "gkm_api_requests_total", "Answers of the Kubernetes API; code none: there was none.", ["verb", "code"],
    registry=REGISTRY,
)  # fmt: skip

CAPTURES: Final = Counter(
    "gkm_captures_total", "Captures that ended: Announced, Duplicate or Refused.", ["result"], registry=REGISTRY
)
CAPTURE_BYTES: Final = Counter(
    "gkm_capture_bytes_total", "Bytes of captured images that were sent to the registry.", registry=REGISTRY
)
CAPTURE_FAILURES: Final = Counter(
    "gkm_capture_failures_total", "Attempts at a step of a capture that failed and are repeated.", ["reason"],
    registry=REGISTRY,
)  # fmt: skip

LAST_SUCCESS: Final = Gauge(
    "gkm_last_success_timestamp_seconds",
    "Unix time of the last success of a task: pass (reconcile), gpus, pull, capture, status, fabric (API reports).",
    ["task"],
    registry=REGISTRY,
)
READY: Final = Gauge(
    "gkm_ready", "What /readyz answers: 1 if this process is ready, or 0.", ["program"], registry=REGISTRY
)
BUILD_INFO: Final = Gauge(
    "gkm_build_info", "1, with the version of this program.", ["program", "version", "python"], registry=REGISTRY
)

PROGRAM: Final = "gkm-agent"
READ_ONLY: Final = "read-only"
PRIVATE: Final = "private"
MODES: Final = (READ_ONLY, PRIVATE)
"""The modes of mounts, as label values; an empty volume has the mode of private volumes."""

CAPTURE_RESULTS: Final = ("Announced", "Duplicate", "Refused")
CAPTURE_FAILURE_REASONS: Final = (
    Reason.REGISTRY_UNAVAILABLE,
    Reason.UNAUTHORIZED,
    Reason.SIGNATURE_INVALID,
    Reason.NOT_FOUND,
    Reason.DISK_FULL,
    Reason.NO_GPU,
    Reason.GPU_LOST,
    Reason.NODE_ERROR,
)
"""The failure reasons that docs/features/capture.md lists. Their counters exist from 0 on; others from the first
failure on."""

OTHER: Final = "other"
_REASONS: Final = frozenset(Reason)
_CALL = re.compile(r"(?:nvml|amdsmi)[A-Za-z0-9_]{1,60}", re.ASCII)
_MAX_CALLS = 64
_calls: set[str] = set()

Statuses = Mapping[str | None, NodeStatus]
Finding = tuple[str | None, str, str, str]
"""A cache that fits no GPU of this node: scope, name, digest and reason."""


def record_build() -> None:
    """Set the metric with the version of this program."""
    BUILD_INFO.labels(PROGRAM, installed_version(), platform.python_version()).set(1)


def succeeded(task: str) -> None:
    """Set the time of the last success of a task to now."""
    LAST_SUCCESS.labels(task).set_to_current_time()


def count_incompatible(reason: str) -> None:
    """Count a cache that fits no GPU."""
    INCOMPATIBLE.labels(_known(reason)).inc()


def expect_captures() -> None:
    """Create the capture counters with 0, because Prometheus sees no increase in a counter that begins with 1."""
    for result in CAPTURE_RESULTS:
        CAPTURES.labels(result)
    for reason in CAPTURE_FAILURE_REASONS:
        CAPTURE_FAILURES.labels(reason.value)


def count_capture_failure(reason: str) -> None:
    """Count a failed attempt of a capture step."""
    CAPTURE_FAILURES.labels(_known(reason)).inc()


def _known(reason: str) -> str:
    """Return a reason as a label, whose set of values must be fixed."""
    return reason if reason in _REASONS else OTHER


class ReconcileMetrics:
    """Records the metrics of each pass. It remembers incompatible caches, so that each is counted once."""

    def __init__(self) -> None:
        self._incompatible: frozenset[Finding] = frozenset()
        self._not_ready: frozenset[tuple[str, str]] = frozenset()

    def record(self, statuses: Statuses, *, mounts: Iterable[VolumeRecord], store_bytes: int) -> None:
        """Record the result of one pass."""
        caches = [(scope, name, cache) for scope, status in statuses.items() for name, cache in status.caches.items()]
        counts = collections.Counter(cache.state for *_, cache in caches)
        for state in CacheState:
            CACHE_STATE.labels(state.value).set(counts[state.value])
        self._record_not_ready(cache for *_, cache in caches)
        NO_CACHE_FOR_HARDWARE.labels("waiting").set(sum(cache.pod_waits for *_, cache in caches))
        NO_CACHE_FOR_HARDWARE.labels("started").set(sum(cache.pods_without_cache > 0 for *_, cache in caches))
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

    def _record_not_ready(self, caches: Iterable[NodeCacheStatus]) -> None:
        ready = CacheState.READY.value
        counts = collections.Counter(
            (each.state, _known(each.reason)) for each in caches if each.reason and each.state != ready
        )
        for labels in self._not_ready | counts.keys():
            NOT_READY.labels(*labels).set(counts[labels])
        self._not_ready = frozenset(counts)


def gpus_read(inventory: Inventory) -> None:
    """Count the failed calls in one reading of the GPUs."""
    if not inventory.errors:
        succeeded("gpus")
    # "" stands for an error that names no call.
    whole = (error.partition(":")[0] for error in inventory.errors)
    for call in (*whole, *(fault.call for gpu in inventory.gpus for fault in gpu.faults)):
        known = call in _calls or (_CALL.fullmatch(call) is not None and len(_calls) < _MAX_CALLS)
        if known:
            _calls.add(call)
        NVML_ERRORS.labels(call if known else OTHER).inc()


def link_errors_grew(replays: int, recoveries: int) -> None:
    """Add new errors to the counters of NVLinks; the first call creates the counters, also with 0."""
    LINK_ERRORS.labels("replay").inc(replays)
    LINK_ERRORS.labels("recovery").inc(recoveries)


def api_answered(verb: str, status: int) -> None:
    """Count a response of the Kubernetes API; status 0 means that the API server did not answer."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return all metrics in the text format of Prometheus."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)
