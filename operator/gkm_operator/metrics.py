"""What both commands count (design/api.md, "Metrics": the names are API). Labels come from fixed sets only."""

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
    "Time that one look at an object took: done, again (a passing reason) or failed.",
    ["controller", "result"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
QUEUE_DEPTH: Final = Gauge(
    "gkm_queue_depth", "Objects that wait to be looked at, now or later.", ["controller"], registry=REGISTRY
)
API_REQUESTS: Final = Counter(
    "gkm_api_requests_total", "Answers of the Kubernetes API; code none: there was none.", ["verb", "code"],
    registry=REGISTRY,
)  # fmt: skip
ADMISSION_SECONDS: Final = Histogram(
    "gkm_admission_seconds",
    "Time until an admission request was answered: admitted, warned, refused, or late (no time or place to look).",
    ["kind", "result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
    registry=REGISTRY,
)
VERIFY_SECONDS: Final = Histogram(
    "gkm_verify_seconds",
    "Time that admission's verification of one image took: verified, refused, unknown, remembered, or off.",
    ["result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
    registry=REGISTRY,
)
PLANS: Final = Counter(
    "gkm_plan_total",
    "Runs that were planned, by what came of it: planned; refused, with the reason of the condition; failed.",
    ["result", "reason"],
    registry=REGISTRY,
)
PLAN_SECONDS: Final = Histogram(
    "gkm_plan_seconds",
    "Time that planning one run took, whatever came of it; its inventory is not in it.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10),
    registry=REGISTRY,
)
TOPOLOGY_NODES: Final = Gauge(
    "gkm_topology_nodes",
    "Nodes of the last survey: located, quarantined (some label contradicts another, or itself), bare (without GPUs).",
    ["state"],
    registry=REGISTRY,
)
LEADS: Final = Gauge("gkm_leader", "Whether this replica leads: 1 or 0.", registry=REGISTRY)


def reconcile_recorder(controller: str) -> Callable[[str, float], None]:
    """Return what takes in the result and the seconds of one look."""
    return lambda result, seconds: RECONCILE_SECONDS.labels(controller, result).observe(seconds)


def record_review(kind: str, result: str, seconds: float) -> None:
    """Take in an answered admission request; `kind` is one of ours (`gkm_operator.admission.review` reads no other)."""
    ADMISSION_SECONDS.labels(kind, result).observe(seconds)


def record_verification(result: str, seconds: float) -> None:
    """Take in a verification."""
    VERIFY_SECONDS.labels(result).observe(seconds)


def record_plan(result: str, reason: str, seconds: float) -> None:
    """Take in a run that was planned; reasons are ours (gkm_operator.plans.planning.refusals)."""
    PLANS.labels(result, reason).inc()
    PLAN_SECONDS.observe(seconds)


def record_survey(located: int, quarantined: int, bare: int) -> None:
    """Take in a survey of all nodes."""
    for state, count in (("located", located), ("quarantined", quarantined), ("bare", bare)):
        TOPOLOGY_NODES.labels(state).set(count)


def api_answered(verb: str, status: int) -> None:
    """Count an answer of the Kubernetes API, 0 for none."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return all of it, in Prometheus' text format."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)
