"""The reports and the liveness of all nodes, and the totals of each cache, updated by differences."""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import NamedTuple

from gkm.kube.index import Index

from gkm_operator.caches.nodes.liveness import Liveness, LivenessTracker
from gkm_operator.caches.nodes.reports import NodeObject, NodeReport, reports_of
from gkm_operator.caches.nodes.totals import CacheKey, CacheSummary, CacheTotals
from gkm_operator.pods import WatchedPod


class UnfinishedNodes(NamedTuple):
    """The nodes that are still to become ready at a digest: those that answer, and those that are silent."""

    live: Collection[str]
    silent: Collection[str] = ()


class Fleet:
    """The totals of all caches. Thread-safe: five watches update it, each from a thread of its own.

    Every change returns the caches whose totals have changed, or may have.
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
        """Apply a change of a node object."""
        report = new or old
        if report is None:
            return set()
        with self._lock:
            self._reports.change(old, new)
            liveness = self._liveness.liveness(report.metadata.name)
            return self._replace(report, (reports_of(old), liveness), (reports_of(new), liveness))

    def node(self, name: str, *, ready: bool | None) -> set[CacheKey]:
        """Apply a change of a Node's readiness; None: the Node does not exist."""

        def change() -> None:
            if ready is None:
                self._liveness.nodes.pop(name, None)
            else:
                self._liveness.nodes[name] = ready

        return self._update_liveness({name}, change)

    def agent(self, old: WatchedPod | None, new: WatchedPod | None) -> set[CacheKey]:
        """Apply a change of an agent's Pod."""
        names = {agent.node for agent in (old, new) if agent is not None}
        return self._update_liveness(names, lambda: self._liveness.agents.change(old, new))

    def agents_deployed(self, *, deployed: bool) -> set[CacheKey]:
        """Apply the creation or deletion of the agents' DaemonSet, the one change that may affect every node."""

        def change() -> None:
            self._liveness.deployed = deployed

        return self._update_liveness(None, change)

    def summary(self, key: CacheKey, digest: str | None) -> CacheSummary:
        """Return the totals of a cache."""
        with self._lock:
            totals = self._totals.get(key)
            return totals.summary(digest) if totals else CacheSummary()

    def unfinished(self, key: CacheKey, digest: str) -> UnfinishedNodes:
        """Return the nodes that are still to become ready at a digest of a cache. Takes time for every node."""
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
