"""The totals of one cache over the nodes that report it, updated by adding and removing one node at a time. No I/O.

A node is live if the Node exists and is Ready, and its agent is Ready.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import nsmallest
from typing import NamedTuple

from gkm.api.caches import MAX_FAILED_NODES, Cache
from gkm.api.installation import AGENT
from gkm.api.mnnvl_metadata import OBJECT_NAME
from gkm.hoststate.names import CacheRef
from gkm.kube.api import ListSelector
from gkm.kube.index import Index
from gkm.kube.resources import DAEMON_SETS, NamedObject

from gkm_operator.caches.node_reports import NodeReport
from gkm_operator.pods import WatchedPod


class Liveness(Enum):
    """Whether a node is alive, as Node and agent show; the values are texts for messages."""

    GONE = "the Node does not exist"
    ANSWERS = "the node is live"
    NODE_NOT_READY = "the Node is not ready"
    AGENT_NOT_READY = "its agent is not ready"


AGENT_SETS = DAEMON_SETS.of(NamedObject)
"""The agents' DaemonSet; its existence means that agents run as its Pods."""


def agents(namespace: str) -> ListSelector:
    """Return the list selector for the pods of GKM's agents (deploy/chart/gkm/templates/agent.yaml)."""
    return ListSelector(namespace, labels=f"{OBJECT_NAME}={AGENT}")


def agent_set(namespace: str) -> ListSelector:
    """Return the list selector for the agents' DaemonSet."""
    return ListSelector(namespace, fields=f"metadata.name={AGENT}")


class LivenessTracker:
    """Tracks which nodes are alive, from the readiness of Nodes and of the agents' pods. Not thread-safe."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}
        """Whether a Node is Ready; a name without an entry is a Node that does not exist."""
        self.agents = Index[str, WatchedPod](lambda agent: (agent.node,), lambda agent: agent.metadata.name)
        self.deployed = False
        """Whether the agents' DaemonSet exists; without it the Node alone decides."""

    def liveness(self, name: str) -> Liveness:
        """Return whether a node is alive, and if not, why."""
        ready = self.nodes.get(name)
        if ready is None:
            return Liveness.GONE
        if not ready:
            return Liveness.NODE_NOT_READY
        if self.deployed and not any(agent.ready for agent in self.agents.get(name)):
            return Liveness.AGENT_NOT_READY
        return Liveness.ANSWERS


MAX_REASONS = 32
"""Limit of reasons in the status: agents write them as free text."""
OTHER_REASONS = "Other"
MAX_SILENT_NAMED = 3
MAX_UNSERVED_NAMED = 3


class CacheKey(NamedTuple):
    """The namespace and name of a cache object; the namespace is "" for a ClusterGKMCache."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the key as it appears in logs."""
        return str(CacheRef(self.namespace or None, self.name))


def key_of(cache: Cache) -> CacheKey:
    """Return the namespace and name of a cache object."""
    return CacheKey(cache.metadata.namespace, cache.metadata.name)


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """The totals of a cache over all nodes for one digest, as numbers of nodes; `pods` is the number of pods.

    `failures` is status.failedNodeConditions. The cache fits no GPU of `incompatible` nodes, which are not among
    `failed`; `misfits` is status.incompatibleNodeConditions. `silences` names a few of the `silent` nodes, with the
    reason for each. `unserved` nodes have pods that wait for the cache or started without it, because it fits no GPU
    there; `unserved_named` are a few of them.
    """

    total: int = 0
    ready: int = 0
    failed: int = 0
    pods: int = 0
    failures: Mapping[str, list[str]] = field(default_factory=dict)
    silent: int = 0
    silences: Mapping[str, str] = field(default_factory=dict)
    incompatible: int = 0
    misfits: Mapping[str, list[str]] = field(default_factory=dict)
    unserved: int = 0
    unserved_named: tuple[str, ...] = ()

    @property
    def fitting(self) -> int:
        """Return the number of nodes whose GPUs the cache fits."""
        return self.total - self.incompatible


class NodesByReason:
    """Names of nodes by reason of a failure or misfit, and by the digest that they report."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, set[str]]] = {}

    def add(self, digest: str, reason: str, node: str) -> None:
        """Add a node under a digest and a reason; an empty reason adds no node."""
        if reason:
            self._nodes.setdefault(digest, {}).setdefault(reason, set()).add(node)

    def remove(self, digest: str, reason: str, node: str) -> None:
        """Remove a node under a digest and a reason that `add` added."""
        if reason:
            reasons = self._nodes[digest]
            _discard(reasons, reason, node)
            if not reasons:
                del self._nodes[digest]

    def of(self, digests: Collection[str]) -> dict[str, set[str]]:
        """Return the names of the nodes by reason, of all nodes that report one of the digests."""
        merged: dict[str, set[str]] = {}
        for digest in digests:
            for reason, nodes in self._nodes.get(digest, {}).items():
                merged.setdefault(reason, set()).update(nodes)
        return merged


class CacheTotals:
    """Adds up the reports of nodes about one cache; deleted nodes are never added."""

    def __init__(self) -> None:
        self._reports = 0
        self._total = 0
        self._pods = 0
        self._ready: Counter[str] = Counter()
        self._failed = NodesByReason()
        self._misfits = NodesByReason()
        self._unserved: dict[str, set[str]] = {}
        self._silent: dict[str, Liveness] = {}

    def add(self, node: str, report: NodeReport, liveness: Liveness) -> None:
        """Add a node's report. Only a live node is ready; pods and failures of a silent node are its last ones.

        A node that no longer wants the cache adds its pods only.
        """
        self._reports += 1
        self._pods += report.pods
        if report.leaving:
            return
        self._total += 1
        if liveness is not Liveness.ANSWERS:
            self._silent[node] = liveness
        elif report.ready:
            self._ready[report.digest] += 1
        self._failed.add(report.digest, report.failure, node)
        self._misfits.add(report.digest, report.misfit, node)
        if report.unserved:
            self._unserved.setdefault(report.digest, set()).add(node)

    def remove(self, node: str, report: NodeReport, liveness: Liveness) -> None:
        """Remove a node's report; the arguments must equal the arguments of `add`."""
        self._reports -= 1
        self._pods -= report.pods
        if report.leaving:
            return
        self._total -= 1
        if liveness is not Liveness.ANSWERS:
            del self._silent[node]
        elif report.ready:
            self._ready[report.digest] -= 1
            if not self._ready[report.digest]:
                del self._ready[report.digest]
        self._failed.remove(report.digest, report.failure, node)
        self._misfits.remove(report.digest, report.misfit, node)
        if report.unserved:
            _discard(self._unserved, report.digest, node)

    @property
    def empty(self) -> bool:
        """Return whether no node reports the cache."""
        return not self._reports

    def summary(self, digest: str | None) -> CacheSummary:
        """Return the totals of the cache for a digest; None if its digest is not known.

        Ready nodes are counted for this very digest only: a node that still has the old one of an updated cache is not
        ready for the new. A failure or a misfit is added to it as well if the node reported it before it knew any
        digest.
        """
        counted = {digest or "", ""}
        failed, misfits = self._failed.of(counted), self._misfits.of(counted)
        unserved = set[str]().union(*(self._unserved.get(reported, ()) for reported in counted))
        return CacheSummary(
            total=self._total,
            ready=self._ready[digest] if digest else 0,
            failed=_number(failed),
            pods=self._pods,
            failures=_shown(failed),
            silent=len(self._silent),
            silences={name: self._silent[name].value for name in nsmallest(MAX_SILENT_NAMED, self._silent)},
            incompatible=_number(misfits),
            misfits=_shown(misfits),
            unserved=len(unserved),
            unserved_named=tuple(nsmallest(MAX_UNSERVED_NAMED, unserved)),
        )


def _discard(nodes: dict[str, set[str]], key: str, node: str) -> None:
    """Remove a node, and the key with its last one."""
    nodes[key].discard(node)
    if not nodes[key]:
        del nodes[key]


def _number(reasons: Mapping[str, set[str]]) -> int:
    return sum(map(len, reasons.values()))


def _shown(reasons: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the reasons and names that a status shows."""
    top = _top_reasons(reasons)
    return {reason: _capped(top[reason]) for reason in sorted(top)}


def _top_reasons(reasons: Mapping[str, set[str]]) -> Mapping[str, set[str]]:
    """Return at most MAX_REASONS reasons: the reasons of the most nodes, and the rest as one."""
    if len(reasons) <= MAX_REASONS:
        return reasons
    first = nsmallest(MAX_REASONS - 1, reasons, key=lambda reason: (-len(reasons[reason]), reason))
    # An agent may report this very word.
    named = {reason: reasons[reason] for reason in first if reason != OTHER_REASONS}
    return named | {OTHER_REASONS: set().union(*(reasons[reason] for reason in reasons.keys() - named.keys()))}


def _capped(nodes: set[str]) -> list[str]:
    more = len(nodes) - MAX_FAILED_NODES
    return [*nsmallest(MAX_FAILED_NODES, nodes), *([f"and {more} more"] if more > 0 else [])]
