"""The nodes of a cluster, and what its pods use of them, read page by page. It never writes."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gkm.api.runs import RUN_LABEL
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import NODES, Resource
from gkm.topology import pods
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.usage import Usage, added, claiming_pods
from msgspec import Struct, field

from gkm_cli.clusters.reads import listed, pages
from gkm_cli.output import CommandFailed

MAX_PODS = 500_000
"""Pods of a cluster, of which each page is reduced to sums by node: ten for each of 50,000 nodes."""
HINT = "give lists of them with --nodes and --pods"
PLACED = ListSelector(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")


class _Metadata(Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: pods.KubePodSpec = field(default_factory=pods.KubePodSpec)
    status: pods.KubePodStatus = field(default_factory=pods.KubePodStatus)


PODS = Resource("v1", "Pod", "pods", namespaced=True, type=_Pod)


class RunName(NamedTuple):
    """The namespace and name of a Run."""

    namespace: str
    name: str


class PodUsage(NamedTuple):
    """The GPUs of nodes that pods use: those of all pods but the runs' own, and those of each run."""

    others: Usage
    by_run: Mapping[RunName, Mapping[str, int]]


def read_nodes(api: Api) -> NodeList:
    """Return the nodes of a cluster; those that cannot be decoded are unread.

    Raises:
        CommandFailed: nodes cannot be listed.
    """
    nodes, damaged = listed(api, NODES.of(Node), ListSelector())
    unread = (Quarantined(name, QuarantineReason.UNREADABLE, "it cannot be read") for name in damaged)
    return NodeList(tuple(nodes), tuple(unread))


def read_usage(api: Api, own: Collection[RunName] = ()) -> PodUsage:
    """Return what pods use; those of the runs `own` are only in `by_run`.

    Raises:
        CommandFailed: pods cannot be listed, are too many, or one of them cannot be read.
    """
    others: Counter[str] = Counter()
    loads: dict[str, pods.NodeLoad] = {}
    holders: dict[str, dict[str, int]] = {}
    by_run: dict[RunName, Counter[str]] = {}
    faults: dict[str, str] = {}
    claiming: Counter[str] = Counter()
    for page in pages(api, PODS, PLACED, MAX_PODS, HINT):
        if page.unreadable:
            name = "/".join(min(page.unreadable))
            raise CommandFailed(
                f"pod {name} cannot be read, so no node is known to have free GPUs; delete or correct it"
            )
        for pod in (entry.value for entry in page.entries):
            request = pods.Pod(spec=pod.spec, status=pod.status)
            if not pods.occupies_node(request):
                continue
            meta, node = pod.metadata, pod.spec.node_name
            claiming.update(claiming_pods([request]))
            try:
                gpus, load = pods.requested_gpus(request), pods.requested_load(request)
            except ValueError as error:
                faults[node] = min(f"pod {meta.namespace}/{meta.name} on it: {error}", faults.get(node, "\uffff"))
                continue
            run = RunName(meta.namespace, (meta.labels or {}).get(RUN_LABEL, ""))
            if gpus and run.name:
                by_run.setdefault(run, Counter())[node] += gpus
            if run not in own:
                loads[node] = added(loads.get(node, pods.NodeLoad()), load)
                if gpus:
                    others[node] += gpus
                    holders.setdefault(node, {})[f"{meta.namespace}/{meta.name}"] = gpus
    return PodUsage(Usage(others, faults, loads, holders, claiming=claiming), by_run)
