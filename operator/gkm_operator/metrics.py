"""The metrics of both commands. Their names are part of the API; labels have fixed sets of values."""

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gkm.hoststate.command_line import installed_version
from gkm.kube.controller import Controller
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
PLAN_DRIFT: Final = Gauge(
    "gkm_plan_drift_gpus", "GPUs that pods of Runs hold and the current plans of these Runs do not name.",
    registry=REGISTRY,
)  # fmt: skip
FREE_GPUS: Final = Gauge(
    "gkm_free_gpus",
    "GPUs free for new Runs, pods and plans counted: of all nodes, and of the place of each level with the most.",
    ["level"],
    registry=REGISTRY,
)
UNUSABLE_GPUS: Final = Gauge(
    "gkm_unusable_gpus",
    "Free GPUs that the groups of packing.mix could not use: of all nodes, and of the place of each level with most.",
    ["level"],
    registry=REGISTRY,
)
LARGEST_GROUP: Final = Gauge(
    "gkm_largest_group_gpus", "GPUs of the largest group that fits into one domain.", registry=REGISTRY
)
TOPOLOGY_NODES: Final = Gauge(
    "gkm_topology_nodes",
    "Nodes of the last survey for plans: located, quarantined (contradictory labels), bare (without GPUs).",
    ["state"],
    registry=REGISTRY,
)
TOPOLOGY_TREE_NODES: Final = Gauge(
    "gkm_topology_tree_nodes",
    "Nodes of the tree for schedulers: placed, own (in no domain with a name), contradictory (quarantined: in none).",
    ["state"],
    registry=REGISTRY,
)
TOPOLOGY_DOMAINS: Final = Gauge(
    "gkm_topology_domains", "Domains of the tree by level, without those of a single node's own.", ["level"],
    registry=REGISTRY,
)  # fmt: skip
TOPOLOGY_CHANGES: Final = Counter(
    "gkm_topology_changes_total",
    "Writes of the topology, by kind of object (HyperNode, Topology, Node) and action: create, update or delete.",
    ["kind", "action"],
    registry=REGISTRY,
)
TOPOLOGY_PROVIDER_STATE: Final = Gauge(
    "gkm_topology_provider_state", "1 for the state of each provider: Starting, Serving, Failed or Stale.",
    ["provider", "state"], registry=REGISTRY,
)  # fmt: skip
TOPOLOGY_PROVIDER_LAG: Final = Gauge(
    "gkm_topology_provider_lag_seconds",
    "Age of the data of each provider; 0 for those whose changes are watched, NaN before the first data.",
    ["provider"],
    registry=REGISTRY,
)
TOPOLOGY_GUARD_TRIPS: Final = Counter(
    "gkm_topology_guard_trips_total",
    "Changes that would take the places of many nodes and had to be confirmed.",
    registry=REGISTRY,
)
TOPOLOGY_CONFLICTS: Final = Gauge(
    "gkm_topology_conflicts", "Conflicts with HyperNodes of other sources.", registry=REGISTRY
)
CACHES: Final = Gauge(
    "gkm_caches", "Caches by the reason of their condition Ready; none: not written yet.", ["ready"], registry=REGISTRY
)
COMPUTEDOMAINS: Final = Gauge(
    "gkm_computedomains",
    "ComputeDomains: ready, notReady, waiting (for pods, or pods for nodes), terminating (still used), lost; missing: "
    "not created yet.",
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
CAPTURED_CACHES: Final = Counter(
    "gkm_captured_caches_total",
    "Caches of captures that were registered, or that ended: Expired, Superseded or NotOffered.",
    ["result"],
    registry=REGISTRY,
)
CAPTURE_REFUSALS: Final = Counter(
    "gkm_capture_refusals_total", "Announced captures that were not registered, by reason.", ["reason"],
    registry=REGISTRY,
)  # fmt: skip
CAPTURED_CACHES_RETAINED: Final = Gauge(
    "gkm_captured_caches_retained",
    "Caches of captures by the reason of their condition Retained, on the leader.",
    ["reason"],
    registry=REGISTRY,
)
GENERATIONS_HELD_BACK: Final = Gauge(
    "gkm_generations_held_back", "Generations of families with the condition HeldBack, on the leader.",
    registry=REGISTRY,
)  # fmt: skip
LEADS: Final = Gauge("gkm_leader", "Whether this replica is the leader: 1 or 0.", registry=REGISTRY)
READY: Final = Gauge(
    "gkm_ready", "What /readyz answers: 1 if this process is ready, or 0.", ["program"], registry=REGISTRY
)


INSTALLED: Final = Gauge(
    "gkm_installed",
    "1 if a part of the installation is there and ours, on the leader: csidriver, agent, csi (the DaemonSets).",
    ["part"],
    registry=REGISTRY,
)
LAST_SUCCESS: Final = Gauge(
    "gkm_last_success_timestamp_seconds",
    "Unix time of the last success of a task: a controller, installation, review or certificate.",
    ["task"],
    registry=REGISTRY,
)
BUILD_INFO: Final = Gauge(
    "gkm_build_info", "1, with the version of this program.", ["program", "version", "python"], registry=REGISTRY
)


def record_build(program: str) -> None:
    """Set the metric with the version of this program and of Python."""
    BUILD_INFO.labels(program, installed_version(), platform.python_version()).set(1)


def succeeded(task: str) -> None:
    """Set the metric with the time of a task's last success to now."""
    LAST_SUCCESS.labels(task).set_to_current_time()


def expect_captures(retained: Iterable[str], ends: Iterable[str], refusals: Iterable[str]) -> None:
    """Create the capture counters with 0, because Prometheus sees no increase in a counter that begins with 1."""
    for reason in retained:
        CAPTURED_CACHES_RETAINED.labels(reason)
    for result in ("registered", *ends):
        CAPTURED_CACHES.labels(result)
    for reason in refusals:
        CAPTURE_REFUSALS.labels(reason)


def reviewed(kind: str, result: str, seconds: float) -> None:
    """Record an admission request with its result and duration in seconds."""
    ADMISSION_SECONDS.labels(kind, result).observe(seconds)
    if result != "late":
        succeeded("review")


def reconcile_recorder(controller: str) -> Callable[[str, float], None]:
    """Return a function that records the result and duration in seconds of a controller's reconciles as metrics."""

    def record(result: str, seconds: float) -> None:
        RECONCILE_SECONDS.labels(controller, result).observe(seconds)
        if result == "done":
            succeeded(controller)

    return record


def record_survey(located: int, quarantined: int, bare: int) -> None:
    """Set the metrics about located, quarantined and other nodes."""
    for state, count in (("located", located), ("quarantined", quarantined), ("bare", bare)):
        TOPOLOGY_NODES.labels(state).set(count)


def record_fragmentation(level: str, free: int, unusable: float) -> None:
    """Set the metrics of a topology level: free GPUs, and free GPUs that the configured mix of groups could not use."""
    FREE_GPUS.labels(level).set(free)
    UNUSABLE_GPUS.labels(level).set(unusable)


def record_tree(domains: Mapping[str, int], placed: int, own: int, contradictory: int) -> None:
    """Set the metrics of the topology tree: domains by level, and nodes by state."""
    for level, count in domains.items():
        TOPOLOGY_DOMAINS.labels(level).set(count)
    for state, count in (("placed", placed), ("own", own), ("contradictory", contradictory)):
        TOPOLOGY_TREE_NODES.labels(state).set(count)


def api_answered(verb: str, status: int) -> None:
    """Count a response of the Kubernetes API; status 0 means that the server did not answer."""
    API_REQUESTS.labels(verb, str(status) if status else "none").inc()


def page() -> Page:
    """Return all metrics in the text format of Prometheus."""
    return Page(generate_latest(REGISTRY), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def record_depths(controllers: Iterable[Controller]) -> None:
    """Expose the number of waiting keys in each queue of these controllers as the metric gkm_queue_depth."""
    for controller in controllers:
        for name, count in controller.depths.items():
            QUEUE_DEPTH.labels(name).set_function(count)
