"""What the agent counts (design/api.md, "Metrics": the names are API), and how a page of it is made.

Labels come from fixed sets only: never a name that a user chose, so that nobody can make the page grow. Whoever does a
thing counts it here with one line; prometheus_client's values may be changed from any thread.
"""

import re
from typing import Final

from gkm.api.errors import Reason
from gkm.gpus.values import Inventory
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

# A second series for each counter that says when it was made: nobody asked for it.
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
"""Of mounts; an empty volume is private."""

OTHER: Final = "other"
_CALL = re.compile(r"(?:nvml|amdsmi)[A-Za-z0-9_]{1,60}", re.ASCII)
_MAX_CALLS = 64
_calls: set[str] = set()


def incompatible(reason: str) -> None:
    """Count a cache that fits no GPU."""
    INCOMPATIBLE.labels(reason if reason in frozenset(Reason) else OTHER).inc()


def gpus_read(inventory: Inventory) -> None:
    """Count the calls that failed in one reading of the GPUs."""
    for call in failed_calls(inventory):
        known = call in _calls or (_CALL.fullmatch(call) is not None and len(_calls) < _MAX_CALLS)
        if known:
            _calls.add(call)
        NVML_ERRORS.labels(call if known else OTHER).inc()


def failed_calls(inventory: Inventory) -> list[str]:
    """Return the calls that a reading says failed; of one that failed as a whole, "" where it names none."""
    whole = [error.partition(":")[0] for error in inventory.errors]
    return [*whole, *(fault.call for gpu in inventory.gpus for fault in gpu.faults)]


def api_answered(verb: str, status: int) -> None:
    """Count an answer of the Kubernetes API; status 0: there was none."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return everything as Prometheus' text format."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)
