"""The panels of the Grafana dashboard: what each shows, and by which expressions of PromQL."""

from collections.abc import Mapping
from dataclasses import dataclass

WIDTH = 24


RATE = "$__rate_interval"


NODE = 'node=~"$node"'


OURS = 'namespace="gkm-system"'


OBJECTS = 'namespace=~"$namespace", name=~"$cache"'
"""Caches of the chosen namespaces: metrics of kube-state-metrics, as GKM's own have no names of objects."""


GREEN, ORANGE, RED = "green", "orange", "red"
NONE = ((0, GREEN), (1, RED))
"""The thresholds of a number that is 0 while all is well."""


@dataclass(frozen=True)
class Panel:
    """One panel: what each expression draws, by its legend. `unit` is a name of Grafana's units.

    `runbook` is the path of a page below docs/runbooks, perhaps with an anchor. Each of `thresholds` is the least value
    of its color; a panel without them has no color that says good or bad.
    """

    title: str
    about: str
    series: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    runbook: str = ""
    thresholds: tuple[tuple[float, str], ...] = ()


def _stat(
    title: str, expression: str, about: str, runbook: str = "README.md", thresholds: tuple[tuple[float, str], ...] = ()
) -> Panel:
    return Panel(title, about, {"": expression}, "short", "stat", 4, 4, runbook, thresholds)


def _quantiles(metric: str, by: str, where: str = "") -> dict[str, str]:
    """Return median and 99th percentile of a histogram, by a label."""
    legend = f" {{{{{by}}}}}" if by else ""
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket{where}[{RATE}]))"
    return {f"p{share}{legend}": f"histogram_quantile(0.{share}, {rate})" for share in (50, 99)}


ROWS: Mapping[str, tuple[Panel, ...]] = {
    "At a glance": (
        _stat(
            "Caches ready",
            'sum(gkm_cache_state{state="Ready"})',
            "Caches that pods can mount, counted on each node.",
            "caches.md",
        ),
        _stat(
            "Failed",
            'sum(gkm_cache_state{state="Failed"})',
            "Caches that failed, counted on each node.",
            "caches.md#gkmcachefailed",
            NONE,
        ),
        _stat("Mounted", "sum(gkm_mounts)", "Volumes of pods.", "caches.md#gkmmountsfailing"),
        _stat("Agents", "count(gkm_store_bytes)", "Nodes whose agent answers.", "nodes.md"),
        _stat(
            "Leaders",
            "count(max by (pod) (gkm_leader) == 1) or vector(0)",
            "Must be 1.",
            "control-plane.md#gkmnoleader",
            ((0, RED), (1, GREEN), (2, RED)),
        ),
        _stat(
            "Alerts",
            'count(ALERTS{alertname=~"GKM.*"}) or vector(0)',
            "Pending and firing alerts of GKM.",
            "README.md",
            NONE,
        ),
    ),
    "Caches": (
        Panel(
            "Caches by state",
            "Counted on each node.",
            {"{{state}}": f"sum by (state) (gkm_cache_state{{{NODE}}})"},
        ),
        Panel(
            "Not ready, by reason",
            "Failed and Incompatible caches, and those that wait for something. Reasons: docs/reference/reasons.md.",
            {"{{state}} {{reason}}": f"sum by (state, reason) (gkm_cache_not_ready{{{NODE}}}) > 0"},
        ),
        Panel(
            "Caches by the condition Ready",
            "Each cache once, by the reason of its condition: NodesIncompatible and NoMatchingNodes fit no node.",
            {"{{ready}}": "max by (ready) (gkm_caches)"},
        ),
        Panel(
            "Preflight: caches that fit no GPU",
            "New results of the comparison of images with GPUs, by reason; each counts once.",
            {"{{reason}}": f"sum by (reason) (increase(gkm_incompatible_total{{{NODE}}}[{RATE}]))"},
        ),
        Panel(
            "Pods without a cache for their GPUs",
            "Caches that fit no GPU of a node, and that a pod there waits for or started without.",
            {"{{pods}}": f"sum by (pods) (gkm_no_cache_for_hardware{{{NODE}}})"},
            runbook="caches.md#gkmcachewithoutnode",
            thresholds=((0, GREEN), (1, ORANGE)),
        ),
        Panel(
            "Time of a pull's stages",
            "Pulls that failed count, too.",
            _quantiles("gkm_pull_seconds", "stage", f"{{{NODE}}}"),
            "s",
            runbook="caches.md#gkmpullstuck",
        ),
        Panel(
            "From registries",
            "Bytes of blobs, also those of pulls that failed.",
            {"{{node}}": f"sum by (node) (rate(gkm_pull_bytes_total{{{NODE}}}[{RATE}]))"},
            "Bps",
        ),
        Panel(
            "Signature checks",
            "Nodes and admission; `remembered` and `off` checked nothing.",
            {"{{result}}": f"sum by (result) (increase(gkm_verify_seconds_count[{RATE}]))"},
        ),
    ),
    "Caches by namespace (kube-state-metrics)": (
        Panel(
            "Nodes of each namespace",
            "Nodes that should have a cache, that have it, and on which it failed, added up for each namespace.",
            {
                "wanted": f"sum by (namespace) (gkm_object_cache_nodes{{{OBJECTS}}})",
                "ready": f"sum by (namespace) (gkm_object_cache_nodes_ready{{{OBJECTS}}})",
                "failed": f"sum by (namespace) (gkm_object_cache_nodes_failed{{{OBJECTS}}})",
                "pods": f"sum by (namespace) (gkm_object_cache_pods_using{{{OBJECTS}}})",
                "bytes": f"sum by (namespace) (gkm_object_cache_size_bytes{{{OBJECTS}}})",
            },
            kind="table",
            width=12,
            runbook="caches.md",
        ),
        Panel(
            "Each cache",
            "Incompatible: nodes whose GPUs the cache does not fit.",
            {
                "wanted": f"sum by (namespace, name) (gkm_object_cache_nodes{{{OBJECTS}}})",
                "ready": f"sum by (namespace, name) (gkm_object_cache_nodes_ready{{{OBJECTS}}})",
                "failed": f"sum by (namespace, name) (gkm_object_cache_nodes_failed{{{OBJECTS}}})",
                "incompatible": f"sum by (namespace, name) (gkm_object_cache_nodes_incompatible{{{OBJECTS}}})",
                "pods": f"sum by (namespace, name) (gkm_object_cache_pods_using{{{OBJECTS}}})",
                "bytes": f"sum by (namespace, name) (gkm_object_cache_size_bytes{{{OBJECTS}}})",
            },
            kind="table",
            width=12,
            runbook="caches.md#gkmcachewithoutnode",
        ),
        Panel(
            "Not ready, by cache",
            "Caches whose condition Ready is not True, with its reason. Reasons: docs/reference/reasons.md.",
            {
                "{{namespace}}/{{name}} {{reason}}": "count by (namespace, name, reason) "
                f'(gkm_object_cache_condition{{type="Ready", {OBJECTS}}} < 1)',
            },
            width=12,
            runbook="caches.md#gkmcachefailed",
        ),
        Panel(
            "Pods of each cache",
            "Pods that have the cache mounted.",
            {"{{namespace}}/{{name}}": f"sum by (namespace, name) (gkm_object_cache_pods_using{{{OBJECTS}}})"},
            width=12,
            runbook="caches.md",
        ),
    ),
    "Store": (
        Panel(
            "Store",
            "Bytes of the entries of each node.",
            {"{{node}}": f"sum by (node) (gkm_store_bytes{{{NODE}}})"},
            "bytes",
        ),
        Panel(
            "Evicted",
            "Bytes of entries that were removed: unused ones, and for space.",
            {"{{node}}": f"sum by (node) (increase(gkm_gc_bytes_total{{{NODE}}}[{RATE}]))"},
            "bytes",
        ),
        Panel(
            "Kernels that the caches lacked",
            "Compiled by pods that ended, by the reason why the mounted cache did not have them.",
            {
                "{{runtime}} {{reason}}": "sum by (runtime, reason) "
                f"(increase(gkm_kernel_misses_total{{{NODE}}}[{RATE}]))",
            },
        ),
        Panel(
            "Starts that compiled",
            "Volumes of pods that ended: every kernel hit or none was looked up, some missed, or there was no cache.",
            {
                "compiled nothing": f'sum(increase(gkm_private_layers_total{{wrote="no", {NODE}}}[{RATE}]))',
                "compiled beside a cache": f'sum(increase(gkm_private_layers_total{{wrote="yes", {NODE}}}[{RATE}]))',
                "compiled without a cache": f"sum(increase(gkm_volumes_without_cache_total{{{NODE}}}[{RATE}]))",
            },
        ),
        Panel(
            "Captures",
            "What became of files that pods compiled, and attempts that failed and are repeated.",
            {
                "{{result}}": f"sum by (result) (increase(gkm_captures_total{{{NODE}}}[{RATE}]))",
                "{{reason}}": f"sum by (reason) (increase(gkm_capture_failures_total{{{NODE}}}[{RATE}]))",
            },
        ),
        Panel(
            "Caches of captures",
            "Those of the leader by the reason why they stay, and what was registered, held back, refused and ended.",
            {
                "held back": "sum(gkm_generations_held_back)",
                "{{reason}}": "sum by (reason) (gkm_captured_caches_retained)",
                "{{result}}": f"sum by (result) (increase(gkm_captured_caches_total[{RATE}]))",
                "not registered: {{reason}}": f"sum by (reason) (increase(gkm_capture_refusals_total[{RATE}]))",
            },
        ),
        Panel(
            "Captured images sent",
            "By each agent, to the registry of captures.",
            {"{{node}}": f"sum by (node) (rate(gkm_capture_bytes_total{{{NODE}}}[{RATE}]))"},
            "Bps",
        ),
        Panel(
            "Failed calls of the GPU driver",
            "One for each reading.",
            {"{{node}} {{call}}": f"sum by (node, call) (increase(gkm_nvml_errors_total{{{NODE}}}[{RATE}]))"},
            runbook="nodes.md#gkmgpusunreadable",
            thresholds=NONE,
        ),
        Panel(
            "Errors of NVLinks",
            "Replays and recoveries of links; the NodeFabric of a degraded node names the link.",
            {"{{node}} {{kind}}": f"sum by (node, kind) (increase(gkm_nvlink_errors_total{{{NODE}}}[{RATE}]))"},
            thresholds=NONE,
        ),
    ),
    "Mounts": (
        Panel(
            "Time of a mount",
            "From kubelet's request to the mounted volume.",
            _quantiles("gkm_publish_seconds", "", f'{{code="OK", {NODE}}}'),
            "s",
            runbook="caches.md#gkmmountsslow",
            thresholds=((0, GREEN), (1, ORANGE)),
        ),
        Panel(
            "Mounts that did not succeed",
            "UNAVAILABLE: the cache is not ready yet, and kubelet tries again.",
            {
                "{{code}}": f'sum by (code) (increase(gkm_publish_seconds_count{{code!="OK", {NODE}}}[{RATE}]))',
            },
        ),
        Panel(
            "Mounted volumes",
            "Private volumes hold what a pod compiled beyond its cache.",
            {"{{mode}}": f"sum by (mode) (gkm_mounts{{{NODE}}})"},
        ),
        Panel(
            "Private volumes that ended",
            "wrote no: the program compiled no kernel into the volume: each kernel hit, or it never looked there. "
            "wrote yes: it compiled some, or wrote other files. gkm why POD shows a running one.",
            {"wrote {{wrote}}": f"sum by (wrote) (increase(gkm_private_layers_total{{{NODE}}}[{RATE}]))"},
        ),
        Panel(
            "Bytes written beside the cache",
            "What programs left in their private layers: kernels that missed, and other files.",
            {"{{node}}": f"sum by (node) (increase(gkm_private_layer_bytes_total{{{NODE}}}[{RATE}]))"},
            "bytes",
        ),
    ),
    "Controllers": (
        Panel(
            "Reconciles",
            "again: for a passing reason. failed: a defect.",
            {"{{result}}": f"sum by (result) (rate(gkm_reconcile_seconds_count[{RATE}]))"},
            "reqps",
            runbook="control-plane.md#gkmreconcilefailed",
        ),
        Panel("Time of a reconcile", "By controller.", _quantiles("gkm_reconcile_seconds", "controller"), "s"),
        Panel(
            "Queues",
            "Objects that are due now or later.",
            {"{{pod}} {{controller}}": "sum by (pod, controller) (gkm_queue_depth)"},
        ),
        Panel(
            "Requests to the Kubernetes API",
            "Of all processes; none: no answer.",
            {"{{verb}} {{code}}": f"sum by (verb, code) (rate(gkm_api_requests_total[{RATE}]))"},
            "reqps",
            runbook="control-plane.md#gkmapierrors",
        ),
        Panel(
            "Leader",
            "Which replica leads.",
            {"{{pod}}": "max by (pod) (gkm_leader) > 0"},
            runbook="control-plane.md#gkmtwoleaders",
        ),
        Panel(
            "Installed",
            "1: installed and ours. The leader looks each minute.",
            {"{{part}}": "max by (part) (gkm_installed)"},
            runbook="control-plane.md#gkmpartnotinstalled",
            thresholds=((0, RED), (1, GREEN)),
        ),
    ),
    "Admission and plans": (
        Panel(
            "Reviews",
            "By kind of object and result; late: the image was not checked in time.",
            {"{{kind}} {{result}}": f"sum by (kind, result) (increase(gkm_admission_seconds_count[{RATE}]))"},
        ),
        Panel(
            "Time of a review",
            "API servers wait for 10 s.",
            _quantiles("gkm_admission_seconds", "kind"),
            "s",
            runbook="admission.md#gkmadmissionslow",
            thresholds=((0, GREEN), (5, ORANGE), (10, RED)),
        ),
        Panel(
            "Plans",
            "Runs that were planned or refused, with the reason.",
            {"{{result}} {{reason}}": f"sum by (result, reason) (increase(gkm_plan_total[{RATE}]))"},
            runbook="topology.md#gkmplansfailed",
        ),
        Panel(
            "GPUs for new runs",
            "Free, of all nodes and of the place of each level with the most; usable is less what the groups of "
            "packing.mix could not use; largest group: that fits into one domain; drift: GPUs of pods outside of the "
            "plans of their runs.",
            {
                "free: {{level}}": "max by (level) (gkm_free_gpus)",
                "usable: all": 'max(gkm_free_gpus{level="all"}) - max(gkm_unusable_gpus{level="all"})',
                "largest group": "max(gkm_largest_group_gpus)",
                "drift": "max(gkm_plan_drift_gpus)",
            },
            runbook="topology.md#gkmplansdrift",
        ),
    ),
    "Domains and task groups": (
        Panel("ComputeDomains", "By state.", {"{{state}}": "max by (state) (gkm_computedomains)"}),
        Panel("TaskGroups", "By phase.", {"{{phase}}": "max by (phase) (gkm_task_groups)"}),
        Panel(
            "Objects of TaskGroups",
            "leaked: found after their group was gone, and deleted.",
            {"{{result}}": f"sum by (result) (increase(gkm_task_group_objects_total[{RATE}]))"},
        ),
    ),
    "Topology": (
        Panel(
            "Nodes",
            "Of plans (located, quarantined, bare), and of the tree for schedulers (placed, own, contradictory).",
            {
                "plans: {{state}}": "max by (state) (gkm_topology_nodes)",
                "tree: {{state}}": "max by (state) (gkm_topology_tree_nodes)",
            },
            runbook="topology.md#gkmnodesquarantined",
        ),
        Panel("Domains of the tree", "By level.", {"{{level}}": "max by (level) (gkm_topology_domains)"}),
        Panel(
            "Writes",
            "A steady cluster has none.",
            {"{{kind}} {{action}}": f"sum by (kind, action) (increase(gkm_topology_changes_total[{RATE}]))"},
        ),
        Panel(
            "Providers",
            "Which state each provider has.",
            {"{{provider}} {{state}}": "max by (provider, state) (gkm_topology_provider_state) > 0"},
            runbook="topology.md#gkmtopologyproviderfailed",
        ),
        Panel(
            "Age of the data",
            "0 while a watch shows every change.",
            {"{{provider}}": "max by (provider) (gkm_topology_provider_lag_seconds)"},
            "s",
            runbook="topology.md#gkmtopologydataold",
            thresholds=((0, GREEN), (3600, ORANGE)),
        ),
        Panel(
            "Guard and conflicts",
            "Changes that had to be confirmed, and HyperNodes of other sources in the way.",
            {
                "held changes": f"sum(increase(gkm_topology_guard_trips_total[{RATE}]))",
                "conflicts": "max(gkm_topology_conflicts)",
            },
            runbook="topology.md#gkmtopologychangeheld",
            thresholds=((0, GREEN), (1, ORANGE)),
        ),
    ),
    "Processes": (
        Panel("Memory", "Resident.", {"{{pod}}": f"process_resident_memory_bytes{{{OURS}}}"}, "bytes"),
        Panel("CPU", "Cores.", {"{{pod}}": f"rate(process_cpu_seconds_total{{{OURS}}}[{RATE}])"}),
        Panel("Open files", "Of each process.", {"{{pod}}": f"process_open_fds{{{OURS}}}"}),
        Panel(
            "Scraped and ready",
            "1: answers scrapes; is ready.",
            {"{{pod}} scraped": f"up{{{OURS}}}", "{{pod}} ready": "min by (pod) (gkm_ready)"},
            runbook="nodes.md#gkmnotready",
            thresholds=((0, RED), (1, GREEN)),
        ),
        Panel(
            "Since the last success",
            "Tasks without work have old times.",
            {"{{pod}} {{task}}": "time() - max by (pod, task) (gkm_last_success_timestamp_seconds)"},
            "s",
            runbook="nodes.md#gkmagentstuck",
        ),
        Panel(
            "Versions",
            "Processes of each version.",
            {"{{program}} {{version}}": "count by (program, version) (gkm_build_info)"},
            kind="bargauge",
            runbook="nodes.md#gkmversionsdiffer",
        ),
    ),
}
RUNBOOKS = {
    "At a glance": "README.md",
    "Caches": "caches.md",
    "Caches by namespace (kube-state-metrics)": "caches.md",
    "Store": "caches.md#gkmstorefull",
    "Mounts": "caches.md#gkmmountsfailing",
    "Controllers": "control-plane.md",
    "Admission and plans": "admission.md",
    "Domains and task groups": "domains.md",
    "Topology": "topology.md",
    "Processes": "nodes.md",
}
"""The runbook of each row, for the panels that name none."""
