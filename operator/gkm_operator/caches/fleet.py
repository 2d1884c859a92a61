"""The totals of each cache over all nodes, updated with each change of a node's report or liveness."""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import NamedTuple

from gkm.kube.api import Api
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import Reflector
from gkm.kube.resources import NamedObject
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.topology.nodes import Node

from gkm_operator.caches.node_reports import CLUSTER_REPORTS, REPORTS, NodeObject, NodeReport, reports_of
from gkm_operator.caches.totals import (
    AGENT_SETS,
    CacheKey,
    CacheSummary,
    CacheTotals,
    Liveness,
    LivenessTracker,
    agent_set,
    agents,
)
from gkm_operator.nodes import NODES
from gkm_operator.pods import PODS, WatchedPod, is_agent


class UnfinishedNodes(NamedTuple):
    """The nodes that do not have a digest of a cache ready yet: nodes that answer, and nodes that are silent."""

    live: Collection[str]
    silent: Collection[str] = ()


class Fleet:
    """Keeps the totals of all caches over all nodes. Thread-safe: five watches update it, each from its thread.

    Every change returns the caches whose totals may have changed.
    """

    def __init__(self) -> None:
        self._reports: Index[str, NodeObject] = Index(
            lambda report: (report.metadata.name,), lambda report: report.metadata.namespace
        )
        self._liveness = LivenessTracker()
        self._totals: dict[CacheKey, CacheTotals] = {}
        # One lock for all three: totals must never combine a report with an outdated liveness.
        self._lock = Lock()

    def reported(self, old: NodeObject | None, new: NodeObject | None) -> set[CacheKey]:
        """Apply a change of a node's report (GKMCacheNode)."""
        report = new or old
        if report is None:
            return set()
        with self._lock:
            self._reports.change(old, new)
            liveness = self._liveness.liveness(report.metadata.name)
            return self._replace(report, (reports_of(old), liveness), (reports_of(new), liveness))

    def node(self, name: str, *, ready: bool | None) -> set[CacheKey]:
        """Apply a change of a Node's readiness to the totals; `ready` is None for a deleted Node."""

        def change() -> None:
            if ready is None:
                self._liveness.nodes.pop(name, None)
            else:
                self._liveness.nodes[name] = ready

        return self._update_liveness({name}, change)

    def agent(self, old: WatchedPod | None, new: WatchedPod | None) -> set[CacheKey]:
        """Apply a change of the agent's pod on a node to the totals."""
        names = {agent.node for agent in (old, new) if agent is not None}
        return self._update_liveness(names, lambda: self._liveness.agents.change(old, new))

    def agents_deployed(self, *, deployed: bool) -> set[CacheKey]:
        """Apply the creation or deletion of the agents' DaemonSet, which may affect every node."""

        def change() -> None:
            self._liveness.deployed = deployed

        return self._update_liveness(None, change)

    def summary(self, key: CacheKey, digest: str | None) -> CacheSummary:
        """Return the totals of a cache for a digest; zeros if no node reports the cache."""
        with self._lock:
            totals = self._totals.get(key)
            return totals.summary(digest) if totals else CacheSummary()

    def unfinished(self, key: CacheKey, digest: str) -> UnfinishedNodes:
        """Return the nodes that do not have a digest of a cache ready yet. Takes time proportional to the nodes."""
        live: list[str] = []
        silent: list[str] = []
        with self._lock:
            for name in self._liveness.nodes:
                if self._is_unfinished(name, key, digest):
                    answers = self._liveness.liveness(name) is Liveness.ANSWERS
                    (live if answers else silent).append(name)
        return UnfinishedNodes(live, silent)

    def _is_unfinished(self, node: str, key: CacheKey, digest: str) -> bool:
        for report in self._reports.get(node):
            if report.metadata.namespace == key.namespace and key.name in report.status.reports:
                return report.status.reports[key.name].is_unfinished(digest)
        return False

    def _update_liveness(self, names: Iterable[str] | None, change: Callable[[], None]) -> set[CacheKey]:
        """Make a change that may alter the liveness of the nodes with these names (None: all)."""
        changed: set[CacheKey] = set()
        with self._lock:
            affected = list(self._liveness.nodes) if names is None else names
            before = {name: self._liveness.liveness(name) for name in affected}
            change()
            for name, was in before.items():
                now = self._liveness.liveness(name)
                if was is now:
                    continue
                for report in self._reports.get(name):
                    reports = reports_of(report)
                    changed |= self._replace(report, (reports, was), (reports, now))
        return changed

    def _replace(self, report: NodeObject, old: "_Counted", new: "_Counted") -> set[CacheKey]:
        """Replace the contribution of a node object."""
        node, namespace = report.metadata.name, report.metadata.namespace
        (before, was), (after, now) = _of_existing_node(old), _of_existing_node(new)
        changed = set()
        for name in before.keys() | after.keys():
            removed, added = before.get(name), after.get(name)
            if removed == added and was is now:
                continue
            key = CacheKey(namespace, name)
            changed.add(key)
            totals = self._totals.setdefault(key, CacheTotals())
            if removed is not None:
                totals.remove(node, removed, was)
            if added is not None:
                totals.add(node, added, now)
            if totals.empty:
                del self._totals[key]
        return changed


_Counted = tuple[Mapping[str, NodeReport], Liveness]


def _of_existing_node(counted: _Counted) -> _Counted:
    reports, liveness = counted
    return ({}, liveness) if liveness is Liveness.GONE else (reports, liveness)


class NodeWatcher:
    """Watches GKMCacheNodes, ClusterGKMCacheNodes, Nodes, and agents in GKM's `namespace`; `fleet` has the totals.

    `changed` is called with every cache whose totals have changed.
    """

    def __init__(
        self,
        api: Api,
        changed: Callable[[CacheKey], None],
        namespace: str = DEFAULT_NAMESPACE,
        *,
        informers: Informers | None = None,
    ) -> None:
        self._changed = changed
        self.fleet = Fleet()
        shared = informers or Informers(api)
        nodes, reports, cluster_reports = shared.of(NODES), shared.of(REPORTS), shared.of(CLUSTER_REPORTS)
        nodes.subscribe(self._node_changed)
        for each in (reports, cluster_reports):
            each.subscribe(self._report_changed)
        # Started in this order: if a node's liveness is known before its report, its totals are computed once.
        self.reflectors = (
            Reflector(api, AGENT_SETS, self._agent_set_changed, selector=agent_set(namespace)),
            shared.select(PODS, self._agent_changed, wants=is_agent(namespace), selector=agents(namespace)),
            nodes,
            reports,
            cluster_reports,
        )

    def _report_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        self._enqueue(self.fleet.reported(old, new))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # kubelets write the status of every Node all the time: only a change of readiness matters here.
        before, after = (None if node is None else node.ready for node in (old, new))
        node = new or old
        if node is not None and before != after:
            self._enqueue(self.fleet.node(node.metadata.name, ready=after))

    def _agent_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        self._enqueue(self.fleet.agent(old, new))

    def _agent_set_changed(self, old: NamedObject | None, new: NamedObject | None) -> None:
        # Its status changes with every agent: only its existence affects the nodes.
        if (old is None) != (new is None):
            self._enqueue(self.fleet.agents_deployed(deployed=new is not None))

    def _enqueue(self, keys: Iterable[CacheKey]) -> None:
        for key in keys:
            self._changed(key)
