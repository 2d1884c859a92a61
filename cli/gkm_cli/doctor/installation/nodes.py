"""The nodes: GKM runs where GPUs are, and their disk, driver, kubelet and clock are fit for it. Pure."""

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta

from gkm.api.errors import Reason
from gkm.api.installation import AGENT
from gkm.api.nodes import CacheNode, NodeCacheStatus

from gkm_cli.doctor.findings import Finding, Severity, command, moment, named, some
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.objects import OUR_LABEL, gpus_of, node_labels
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

OLDEST_KUBELET = (1, 32)
"""The oldest usable kubelet version: agents need tokens that name their node (README.md), and preStop hooks that
sleep."""
MAX_SKEW = timedelta(seconds=30)
DRIVER_REASONS = frozenset({Reason.DRIVER_TOO_OLD, Reason.PTX_TOO_NEW})
CacheKey = tuple[str, str]
"""Namespace and name; the namespace of a ClusterGKMCache is empty."""
_VERSION = re.compile(r"v(\d{1,4})\.(\d{1,4})", re.ASCII)


@check("nodes/label", "every node with GPUs has a label", "daemon_sets nodes pods", subjects.NODES)
def label(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes with GPUs of the agent's vendor on which no agent may run.

    A label `gkm.io/gpu=false` says that it is meant so. Terms of an administrator may leave nodes out: a warning.
    """
    daemon_set = observed.daemon_sets.get(AGENT)
    labels = node_labels(daemon_set)
    # Without labels it wants every node. A pod that only waits to be created is another finding (agent/absent).
    if not labels or (OUR_LABEL not in labels and observed.without_agent):
        return
    for node in observed.nodes:
        name = node.metadata.name
        if name in observed.agents or labels & node.metadata.labels.keys() or not node.has(gpus_of(daemon_set)):
            continue
        if not observed.is_settled(node.metadata.creation_timestamp):
            continue
        detail = "it has GPUs, but no label by which GKM runs there"
        if OUR_LABEL in labels:
            why = "GPU feature discovery or Node Feature Discovery has not set its label"
            hint = f"{command('kubectl', 'label', 'node', name, f'{OUR_LABEL}=true')}; or =false if it is meant so"
            yield problem("Node", name, detail, why, hint)
        else:
            why = "nodes.terms of the chart do not select it"
            yield Finding(Severity.WARNING, named("Node", "", name), detail, why, "change nodes.terms, or leave it so")


@check("nodes/kubelet", "every kubelet is new enough", "nodes pods", subjects.NODES_WITH_AGENT)
def kubelet(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes with an agent whose kubelet is too old."""
    for node in observed.nodes_with_agent:
        version = node.status.node_info.kubelet_version
        found = _VERSION.match(version)
        if found and (int(found[1]), int(found[2])) < OLDEST_KUBELET:
            wanted = ".".join(map(str, OLDEST_KUBELET))
            why = "GKM is not tested with it: tokens of pods do not name their node there"
            yield problem(
                "Node", node.metadata.name, f"its kubelet is {version}", why, f"upgrade it to {wanted} or later"
            )


@check("nodes/clock", "the clocks of nodes agree with the API server's", "nodes pods node_leases", subjects.CLOCKS)
def clock(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes with an agent whose clock differs from the API server's.

    A kubelet writes its time into the Lease of its node, and the API server adds its own (managedFields): the time on
    this machine does not matter.
    """
    names = {node.metadata.name for node in observed.nodes_with_agent}
    for lease in observed.node_leases:
        times = [found for one in lease.metadata.managed_fields if (found := moment(one.time))]
        renewed = moment(lease.spec.renew_time)
        if lease.metadata.name not in names or renewed is None or not times:
            continue
        skew = renewed - max(times)
        if abs(skew) > MAX_SKEW:
            direction = "ahead of" if skew > timedelta(0) else "behind"
            yield problem(
                "Node",
                lease.metadata.name,
                f"its clock is {abs(skew).total_seconds():.0f} s {direction} the API server's",
                "certificates and tokens are refused, and retries and retention go wrong",
                "start a time service (chrony, systemd-timesyncd) on the node",
            )


@check("nodes/disk-full", "every node has space for caches", "nodes pods reports", subjects.NODES_WITH_CACHES)
def disk_full(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes without space for a cache."""
    full = {name: cache.message for name, cache in _caches(observed.reports) if cache.reason == Reason.DISK_FULL}
    full |= {
        node.metadata.name: "kubelet reports DiskPressure, and evicts pods"
        for node in observed.nodes_with_agent
        if node.is_true("DiskPressure")
    }
    for name, message in sorted(full.items()):
        why = "a pull needs the space of the cache, and store.minFreePercent of the disk stays free"
        hint = "free space, delete caches, or raise store.maxBytes in gkm-config; the agent tries again by itself"
        yield problem("Node", name, f"no space for caches: {message}", why, hint)


@check("nodes/driver-too-old", "every GPU driver is new enough for the caches", "reports", subjects.REPORTED)
def driver(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes whose GPU driver is older than a cache needs: warnings while other nodes can use the cache."""
    old: dict[str, tuple[CacheKey, str]] = {}
    fitting = {key for _, key, cache in _keyed(observed.reports) if cache.compatible_gpus}
    for name, key, cache in _keyed(observed.reports):
        for group in cache.incompatible_gpus:
            if group.reason in DRIVER_REASONS and (name not in old or key not in fitting):
                old[name] = key, f"{group.reason}: {group.message}"
    for name, (key, message) in sorted(old.items()):
        severity = Severity.WARNING if key in fitting else Severity.PROBLEM
        why = "its kernels were compiled for a newer driver"
        hint = "upgrade the GPU driver of the node, or build the cache with an older CUDA"
        detail = f"its GPU driver is too old for a cache: {message}"
        yield Finding(severity, named("Node", "", name), detail, why, hint)


@check("nodes/stale-reports", "every report has its node", "daemon_sets nodes pods reports", subjects.REPORTS)
def stale_reports(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the reports of nodes on which no agent runs any more."""
    daemon_set = observed.daemon_sets.get(AGENT)
    nodes = {node.metadata.name: node for node in observed.nodes}
    reporting = {
        report.spec.node_name for report in observed.reports if observed.is_settled(report.metadata.creation_timestamp)
    }
    # Kubernetes deletes the pods of a deleted Node within a minute; the controllers then collect its reports.
    reporting -= observed.agents
    gone = sorted(name for name in reporting if name not in nodes)
    # A node with GPUs that lost its label, and one where the pod is only missing, are separate findings.
    missing = daemon_set is None or observed.without_agent
    left = sorted(name for name in reporting & nodes.keys() if not missing and not nodes[name].has(gpus_of(daemon_set)))
    for names, cause, hint in (
        (
            gone,
            "the Node does not exist",
            "kubectl delete gkmcachenodes -A -l gkm.node=NODE; clustergkmcachenodes as well",
        ),
        (left, "GKM does not run on this node any more", "give the node its label back, or delete its gkmcachenodes"),
    ):
        if names:
            detail = f"{cause}: {some(names)}"
            yield problem("GKMCacheNode", names[0], detail, "its caches are listed, but are not ready", hint)


def _caches(reports: Iterable[CacheNode]) -> Iterator[tuple[str, NodeCacheStatus]]:
    yield from ((node, cache) for node, _, cache in _keyed(reports))


def _keyed(reports: Iterable[CacheNode]) -> Iterator[tuple[str, CacheKey, NodeCacheStatus]]:
    """Yield node, namespace and name, and state of each cache in reports."""
    for report in reports:
        for name, cache in report.status.caches.items():
            yield report.spec.node_name, (report.metadata.namespace, name), cache
