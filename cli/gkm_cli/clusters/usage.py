"""The nodes of a cluster, and what its pods use of them, read page by page. It never writes."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gkm.api.runs import RUN_LABEL
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CLAIMS, NODES, Resource
from gkm.topology import pods
from gkm.topology.claims import ResourceClaim, gpus_by_holder
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.usage import Usage, added, claiming_pods, with_claims
from msgspec import Struct, field

from gkm_cli.clusters.reads import NotServed, Unreadable, listed, pages
from gkm_cli.output import CommandFailed

MAX_PODS = 500_000
"""Limit of pods of a cluster: ten for each of 50,000 nodes."""
HINT = "give lists with --nodes and --pods (of gkm topology show, gkm plan)"
"""Also for `gkm status -o html`, which has no such options."""
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
    """The GPUs that pods use on each node: by Run for the Runs `own`, and together for all other pods."""

    others: Usage
    by_run: Mapping[RunName, Mapping[str, int]]


def read_nodes(api: Api) -> NodeList:
    """Return the nodes of a cluster; nodes that cannot be decoded are in `unread`.

    Raises:
        CommandFailed: nodes cannot be listed.
    """
    nodes, damaged = listed(api, NODES.of(Node), ListSelector(), "give a list with --nodes (of gkm topology, gkm plan)")
    unread = (Quarantined(name, QuarantineReason.UNREADABLE, "it cannot be read") for name in damaged)
    return NodeList(tuple(nodes), tuple(unread))


def read_usage(api: Api, own: Collection[RunName] = ()) -> PodUsage:
    """Return the GPUs that pods use, and hold by claims; pods of the Runs `own` are only in `by_run`.

    Raises:
        CommandFailed: pods cannot be listed, are too many, or one of them cannot be read.
    """
    sums = _Sums(own)
    for page in pages(api, PODS, PLACED, MAX_PODS, HINT):
        if page.unreadable:
            name = "/".join(min(page.unreadable))
            raise CommandFailed(
                f"pod {name} cannot be read, so no node is known to have free GPUs; delete or correct it"
            )
        for entry in page.entries:
            sums.add(entry.value)
    claimed = _claimed(api, sums.claimants)
    return sums.usage() if claimed is None else sums.with_claims(claimed)


class _Sums:
    """Running sums over pods; `claimants` are the pods of runs that have claims."""

    def __init__(self, own: Collection[RunName]) -> None:
        self.claimants: dict[tuple[str, str], RunName] = {}
        self._own = own
        self._others: Counter[str] = Counter()
        self._loads: dict[str, pods.NodeLoad] = {}
        self._holders: dict[str, dict[str, int]] = {}
        self._by_run: dict[RunName, Counter[str]] = {}
        self._faults: dict[str, str] = {}
        self._claiming: Counter[str] = Counter()

    def add(self, pod: _Pod) -> None:
        """Add a pod's requests, if the pod occupies a node."""
        request = pods.Pod(spec=pod.spec, status=pod.status)
        if not pods.occupies_node(request):
            return
        meta, node = pod.metadata, pod.spec.node_name
        self._claiming.update(claiming_pods([request]))
        try:
            gpus, load = pods.requested_gpus(request), pods.requested_load(request)
        except ValueError as error:
            message = f"pod {meta.namespace}/{meta.name} on it: {error}"
            self._faults[node] = min(message, self._faults.get(node, "\uffff"))
            return
        run = RunName(meta.namespace, (meta.labels or {}).get(RUN_LABEL, ""))
        if run.name:
            self._add_of_run(run, pod, gpus)
        if run not in self._own:
            self._loads[node] = added(self._loads.get(node, pods.NodeLoad()), load)
            if gpus:
                self._others[node] += gpus
                self._holders.setdefault(node, {})[f"{meta.namespace}/{meta.name}"] = gpus

    def _add_of_run(self, run: RunName, pod: _Pod, gpus: int) -> None:
        if gpus:
            self._by_run.setdefault(run, Counter())[pod.spec.node_name] += gpus
        if pod.spec.resource_claims:
            self.claimants[run.namespace, pod.metadata.name] = run

    def usage(self) -> PodUsage:
        """Return the sums without the GPUs of claims."""
        found = Usage(self._others, self._faults, self._loads, self._holders, claiming=self._claiming)
        return PodUsage(found, self._by_run)

    def with_claims(self, claimed: Mapping[RunName | None, Mapping[str, int]]) -> PodUsage:
        """Return the sums plus the GPUs that claims hold for each run (None: for other pods), by node."""
        for run, gpus in claimed.items():
            if run is not None:
                self._by_run.setdefault(run, Counter()).update(gpus)
        found = self.usage()
        others = (gpus for run, gpus in claimed.items() if run not in self._own)
        return found._replace(others=with_claims(found.others, others))


def _claimed(api: Api, runs: Mapping[tuple[str, str], RunName]) -> Mapping[RunName | None, Mapping[str, int]] | None:
    """Return the GPUs by node that claims of each run hold, None those of other pods; None if claims are not shown.

    Raises:
        CommandFailed: claims are too many, or one of them cannot be read.
    """
    found: list[ResourceClaim] = []
    try:
        for page in pages(api, CLAIMS.of(ResourceClaim), ListSelector(), MAX_PODS, HINT):
            if page.unreadable:
                raise CommandFailed(f"ResourceClaim {'/'.join(min(page.unreadable))} cannot be read; correct it")
            found += (entry.value for entry in page.entries if entry.value.held)
    except NotServed:
        return {}
    except Unreadable:
        return None  # the usage says that GPUs of claims are not in it
    return gpus_by_holder(found, lambda namespace, pod: runs.get((namespace, pod)))
