"""What all nodes report and how they stand, and the sums of it, kept by differences (design/aggregation.md)."""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock

from gkm.kube.index import Index

from gkm_operator.caches.nodes.liveness import AgentPod, Liveness, LivenessTracker
from gkm_operator.caches.nodes.reports import NodeObject, NodeReport, reports_of
from gkm_operator.caches.nodes.totals import CacheKey, CacheSummary, CacheTotals


class Fleet:
    """The tallies of all caches. Thread-safe: five watches tell it, each from a thread of its own.

    Every change returns the caches whose sums are others than before, or may be.
    """

    def __init__(self) -> None:
        self._reports: Index[str, NodeObject] = Index(
            lambda report: report.metadata.name, lambda report: report.metadata.namespace
        )
        self._presence = LivenessTracker()
        self._tallies: dict[CacheKey, CacheTotals] = {}
        # One for all three: a sum must never be taken with the standing of a moment ago.
        self._lock = Lock()

    def reported(self, old: NodeObject | None, new: NodeObject | None) -> set[CacheKey]:
        """Take in a difference of a node object."""
        report = new or old
        if report is None:
            return set()
        with self._lock:
            self._reports.change(old, new)
            standing = self._presence.liveness(report.metadata.name)
            return self._replace(report, (reports_of(old), standing), (reports_of(new), standing))

    def node(self, name: str, *, ready: bool | None) -> set[CacheKey]:
        """Take in whether a Node is Ready; None: it is not there."""

        def change() -> None:
            if ready is None:
                self._presence.nodes.pop(name, None)
            else:
                self._presence.nodes[name] = ready

        return self._update_liveness({name}, change)

    def agent(self, old: AgentPod | None, new: AgentPod | None) -> set[CacheKey]:
        """Take in a difference of an agent's Pod."""
        names = {agent.spec.node_name for agent in (old, new) if agent is not None}
        return self._update_liveness(names, lambda: self._presence.agents.change(old, new))

    def agents_deployed(self, *, deployed: bool) -> set[CacheKey]:
        """Take in whether there is a DaemonSet of agents: the one change that may concern every node."""

        def change() -> None:
            self._presence.deployed = deployed

        return self._update_liveness(None, change)

    def summary(self, key: CacheKey, digest: str | None) -> CacheSummary:
        """Return the sums of a cache."""
        with self._lock:
            tally = self._tallies.get(key)
            return tally.summary(digest) if tally else CacheSummary()

    def _update_liveness(self, names: Iterable[str] | None, change: Callable[[], None]) -> set[CacheKey]:
        """Make a change after which the nodes of these names (None: all) may stand otherwise."""
        changed: set[CacheKey] = set()
        with self._lock:
            concerned = list(self._presence.nodes) if names is None else names
            before = {name: self._presence.liveness(name) for name in concerned}
            change()
            for name, was in before.items():
                now = self._presence.liveness(name)
                if was is now:
                    continue
                for report in self._reports.get(name):
                    parts = reports_of(report)
                    changed |= self._replace(report, (parts, was), (parts, now))
        return changed

    def _replace(self, report: NodeObject, old: "_Counted", new: "_Counted") -> set[CacheKey]:
        """Put what a node object counts for in place of what it counted for."""
        node, namespace = report.metadata.name, report.metadata.namespace
        (before, was), (after, now) = _of_those_there(old), _of_those_there(new)
        changed = set()
        for name in before.keys() | after.keys():
            taken, given = before.get(name), after.get(name)
            if taken == given and was is now:
                continue
            key = CacheKey(namespace, name)
            changed.add(key)
            tally = self._tallies.setdefault(key, CacheTotals())
            if taken is not None:
                tally.remove(node, taken, was)
            if given is not None:
                tally.add(node, given, now)
            if tally.empty:
                del self._tallies[key]
        return changed


_Counted = tuple[Mapping[str, NodeReport], Liveness]


def _of_those_there(counted: _Counted) -> _Counted:
    parts, standing = counted
    return ({}, standing) if standing is Liveness.GONE else (parts, standing)
