"""The metrics of both commands. Their names are part of the API; labels have fixed sets of values."""

import platform
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
_counter, _gauge = partial(Counter, registry=REGISTRY), partial(Gauge, registry=REGISTRY)
_histogram = partial(Histogram, registry=REGISTRY)

RECONCILE_SECONDS: Final = _histogram(
    "gkm_reconcile_seconds",
    "Time of one reconcile of an object, by result: done, again (retried for a passing reason) or failed.",
    ["controller", "result"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60),
)
QUEUE_DEPTH: Final = _gauge("gkm_queue_depth", "Objects that wait for a reconcile, now or later.", ["controller"])
API_REQUESTS: Final = _counter(
    "gkm_api_requests_total", "Responses of the Kubernetes API; code none: no response.", ["verb", "code"]
)
ADMISSION_SECONDS: Final = _histogram(
    "gkm_admission_seconds",
    "Time of an admission request, by result: admitted, warned, refused, late (image check not finished).",
    ["kind", "result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
)
VERIFY_SECONDS: Final = _histogram(
    "gkm_verify_seconds",
    "Time of admission's verification of one image, by result: verified, refused, unknown, remembered (cached) or off.",
    ["result"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10),
)
PLANS: Final = _counter(
    "gkm_plan_total",
    "Planned Runs by result: planned; refused, with the reason of the condition; failed.",
    ["result", "reason"],
)
PLAN_SECONDS: Final = _histogram(
    "gkm_plan_seconds",
    "Time of planning one Run, for every result, without reading its inventory.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10),
)
PLAN_DRIFT: Final = _gauge(
    "gkm_plan_drift_gpus", "GPUs that pods of Runs hold and the current plans of these Runs do not name."
)
FREE_GPUS: Final = _gauge(
    "gkm_free_gpus",
    "GPUs free for new Runs, pods and plans counted: of all nodes, and of the place of each level with the most.",
    ["level"],
)
UNUSABLE_GPUS: Final = _gauge(
    "gkm_unusable_gpus",
    "Free GPUs that the groups of packing.mix could not use: of all nodes, and of the place of each level with most.",
    ["level"],
)
LARGEST_GROUP: Final = _gauge("gkm_largest_group_gpus", "GPUs of the largest group that fits into one domain.")
TOPOLOGY_NODES: Final = _gauge(
    "gkm_topology_nodes",
    "Nodes of the last survey for plans: located, quarantined (contradictory labels), bare (without GPUs).",
    ["state"],
)
TOPOLOGY_TREE_NODES: Final = _gauge(
    "gkm_topology_tree_nodes",
    "Nodes of the tree for schedulers: placed, own (in no domain with a name), contradictory (quarantined: in none).",
    ["state"],
)
TOPOLOGY_DOMAINS: Final = _gauge(
    "gkm_topology_domains", "Domains of the tree by level, without those of a single node's own.", ["level"]
)
TOPOLOGY_CHANGES: Final = _counter(
    "gkm_topology_changes_total",
    "Writes of the topology, by kind of object (HyperNode, Topology, Node) and action: create, update or delete.",
    ["kind", "action"],
)
TOPOLOGY_PROVIDER_STATE: Final = _gauge(
    "gkm_topology_provider_state",
    "1 for the state of each provider: Starting, Serving, Failed or Stale.",
    ["provider", "state"],
)
TOPOLOGY_PROVIDER_LAG: Final = _gauge(
    "gkm_topology_provider_lag_seconds",
    "Age of the data of each provider; 0 for those whose changes are watched, NaN before the first data.",
    ["provider"],
)
TOPOLOGY_GUARD_TRIPS: Final = _counter(
    "gkm_topology_guard_trips_total", "Changes that would take the places of many nodes and had to be confirmed."
)
TOPOLOGY_CONFLICTS: Final = _gauge("gkm_topology_conflicts", "Conflicts with HyperNodes of other sources.")
CACHES: Final = _gauge("gkm_caches", "Caches by the reason of their condition Ready; none: not written yet.", ["ready"])
COMPUTEDOMAINS: Final = _gauge(
    "gkm_computedomains",
    "ComputeDomains: ready, notReady, waiting (for pods, or pods for nodes), terminating (still used), lost; missing: "
    "not created yet.",
    ["state"],
)
TASK_GROUPS: Final = _gauge("gkm_task_groups", "TaskGroups by phase, on the leader.", ["phase"])
TASK_GROUP_OBJECTS: Final = _counter(
    "gkm_task_group_objects_total",
    "Objects of TaskGroups: created, deleted with their group, or leaked: deleted because their group was gone.",
    ["result"],
)
CAPTURED_CACHES: Final = _counter(
    "gkm_captured_caches_total",
    "Caches of captures that were registered, or that ended: Expired, Superseded or NotOffered.",
    ["result"],
)
CAPTURE_REFUSALS: Final = _counter(
    "gkm_capture_refusals_total", "Announced captures that were not registered, by reason.", ["reason"]
)
CAPTURED_CACHES_RETAINED: Final = _gauge(
    "gkm_captured_caches_retained",
    "Caches of captures by the reason of their condition Retained, on the leader.",
    ["reason"],
)
GENERATIONS_HELD_BACK: Final = _gauge(
    "gkm_generations_held_back", "Generations of families with the condition HeldBack, on the leader."
)
LEADS: Final = _gauge("gkm_leader", "Whether this replica is the leader: 1 or 0.")
READY: Final = _gauge("gkm_ready", "What /readyz answers: 1 if this process is ready, or 0.", ["program"])
INSTALLED: Final = _gauge(
    "gkm_installed",
    "1 if a part of the installation is there and ours, on the leader: csidriver, agent, csi (the DaemonSets).",
    ["part"],
)
LAST_SUCCESS: Final = _gauge(
    "gkm_last_success_timestamp_seconds",
    "Unix time of the last success of a task: a controller, installation, review or certificate.",
    ["task"],
)
BUILD_INFO: Final = _gauge("gkm_build_info", "1, with the version of this program.", ["program", "version", "python"])


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
