"""The metrics of both commands. Their names are part of the API; labels have fixed sets of values."""

from collections.abc import Callable
from typing import Final

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

disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

RECONCILE_SECONDS: Final = Histogram(
    "gkm_reconcile_seconds",
    "Time of one reconcile of an object, by result: done, again (retried for a passing reason) or failed.",
    ["controller", "result"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
QUEUE_DEPTH: Final = Gauge(
    "gkm_queue_depth", "Objects that wait for a reconcile, now or later.", ["controller"], registry=REGISTRY
)
API_REQUESTS: Final = Counter(
    "gkm_api_requests_total", "Responses of the Kubernetes API; code none: no response.", ["verb", "code"],
    registry=REGISTRY,
)  # fmt: skip
ADMISSION_SECONDS: Final = Histogram(
    "gkm_admission_seconds",
    "Time of an admission request, by result: admitted, warned, refused, late (image check not finished).",
    ["kind", "result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
    registry=REGISTRY,
)
VERIFY_SECONDS: Final = Histogram(
    "gkm_verify_seconds",
    "Time of admission's verification of one image, by result: verified, refused, unknown, remembered (cached) or off.",
    ["result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
    registry=REGISTRY,
)
PLANS: Final = Counter(
    "gkm_plan_total",
    "Planned Runs by result: planned; refused, with the reason of the condition; failed.",
    ["result", "reason"],
    registry=REGISTRY,
)
PLAN_SECONDS: Final = Histogram(
    "gkm_plan_seconds",
    "Time of planning one Run, for every result, without reading its inventory.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10),
    registry=REGISTRY,
)
TOPOLOGY_NODES: Final = Gauge(
    "gkm_topology_nodes",
    "Nodes of the last survey: located, quarantined (contradictory labels), bare (without GPUs).",
    ["state"],
    registry=REGISTRY,
)
COMPUTEDOMAINS: Final = Gauge(
    "gkm_computedomains",
    "ComputeDomains: ready, notReady, waiting (for pods), terminating (still used), lost; missing: not created yet.",
    ["state"],
    registry=REGISTRY,
)
TASK_GROUPS: Final = Gauge("gkm_task_groups", "TaskGroups by phase, on the leader.", ["phase"], registry=REGISTRY)
TASK_GROUP_OBJECTS: Final = Counter(
    "gkm_task_group_objects_total",
    "Objects of TaskGroups: created, deleted with their group, or leaked: deleted because their group was gone.",
    ["result"],
    registry=REGISTRY,
)
LEADS: Final = Gauge("gkm_leader", "Whether this replica is the leader: 1 or 0.", registry=REGISTRY)


def reconcile_recorder(controller: str) -> Callable[[str, float], None]:
    """Return the observer of a controller's reconciles: it records the result and the seconds of each."""
    return lambda result, seconds: RECONCILE_SECONDS.labels(controller, result).observe(seconds)


def record_survey(located: int, quarantined: int, bare: int) -> None:
    """Record a survey of all nodes."""
    for state, count in (("located", located), ("quarantined", quarantined), ("bare", bare)):
        TOPOLOGY_NODES.labels(state).set(count)


def api_answered(verb: str, status: int) -> None:
    """Count a response of the Kubernetes API; status 0 means no response."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return all metrics in Prometheus' text format."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)
