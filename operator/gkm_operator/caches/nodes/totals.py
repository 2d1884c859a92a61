"""The totals of one cache over the nodes that report it, updated by adding and removing one node at a time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from gkm.api.caches import MAX_FAILED_NODES
from gkm.hoststate.names import CacheRef

from gkm_operator.caches.nodes.liveness import Liveness
from gkm_operator.caches.nodes.reports import NodeReport

MAX_REASONS = 32
"""Most reasons in status.failedNodeConditions: they are free text of agents."""
OTHER_REASONS = "Other"
MAX_SILENT_NAMED = 3
MAX_UNSERVED_NAMED = 3


class CacheKey(NamedTuple):
    """The key of a cache; the namespace is empty for a ClusterGKMCache."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the form that logs of every process show."""
        return str(CacheRef(self.namespace or None, self.name))


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """The totals of a cache for one digest.

    `failures` is status.failedNodeConditions; `incompatible` counts the nodes among `failed` with that kind of failure.
    `silences` names a few of the `silent` nodes, with the reason for each. `unserved` nodes have pods that wait for the
    cache or started without it, because it fits no GPU there; `unserved_named` are a few of them.
    """

    total: int = 0
    ready: int = 0
    failed: int = 0
    pods: int = 0
    failures: Mapping[str, list[str]] = field(default_factory=dict)
    silent: int = 0
    silences: Mapping[str, str] = field(default_factory=dict)
    incompatible: int = 0
    unserved: int = 0
    unserved_named: tuple[str, ...] = ()


class CacheTotals:
    """The totals of one cache; nodes with the liveness GONE are never added."""

    def __init__(self) -> None:
        self._total = 0
        self._pods = 0
        self._ready: Counter[str] = Counter()
        self._failed: dict[str, dict[str, set[str]]] = {}
        self._incompatible: Counter[str] = Counter()
        self._unserved: dict[str, set[str]] = {}
        self._silent: dict[str, Liveness] = {}

    def add(self, node: str, report: NodeReport, liveness: Liveness) -> None:
        """Count a node. Only a live node is ready; pods and failures of a silent one are those of its last report."""
        self._total += 1
        self._pods += report.pods
        if liveness is not Liveness.ANSWERS:
            self._silent[node] = liveness
        elif report.ready:
            self._ready[report.digest] += 1
        if report.failure:
            self._failed.setdefault(report.digest, {}).setdefault(report.failure, set()).add(node)
        if report.incompatible:
            self._incompatible[report.digest] += 1
        if report.unserved:
            self._unserved.setdefault(report.digest, set()).add(node)

    def remove(self, node: str, report: NodeReport, liveness: Liveness) -> None:
        """Undo exactly what `add` counted."""
        self._total -= 1
        self._pods -= report.pods
        if liveness is not Liveness.ANSWERS:
            del self._silent[node]
        elif report.ready:
            self._ready[report.digest] -= 1
            if not self._ready[report.digest]:
                del self._ready[report.digest]
        if report.failure:
            reasons = self._failed[report.digest]
            _discard(reasons, report.failure, node)
            if not reasons:
                del self._failed[report.digest]
        if report.incompatible:
            self._incompatible[report.digest] -= 1
            if not self._incompatible[report.digest]:
                del self._incompatible[report.digest]
        if report.unserved:
            _discard(self._unserved, report.digest, node)

    @property
    def empty(self) -> bool:
        """Return whether no node reports the cache."""
        return not self._total

    def summary(self, digest: str | None) -> CacheSummary:
        """Return the totals for a digest.

        Ready nodes count for this very digest only: a node that still has the old one of an updated cache is not ready
        for the new. A failure counts for it as well if the node failed before it knew any digest.
        """
        reasons: dict[str, set[str]] = {}
        counted = {digest or "", ""}
        for reported in counted:
            for reason, nodes in self._failed.get(reported, {}).items():
                reasons.setdefault(reason, set()).update(nodes)
        shown = _top_reasons(reasons)
        unserved = set[str]().union(*(self._unserved.get(reported, ()) for reported in counted))
        return CacheSummary(
            total=self._total,
            ready=self._ready[digest] if digest else 0,
            failed=sum(len(nodes) for nodes in reasons.values()),
            pods=self._pods,
            failures={reason: _capped(shown[reason]) for reason in sorted(shown)},
            silent=len(self._silent),
            silences={name: self._silent[name].value for name in nsmallest(MAX_SILENT_NAMED, self._silent)},
            incompatible=sum(self._incompatible[reported] for reported in counted),
            unserved=len(unserved),
            unserved_named=tuple(nsmallest(MAX_UNSERVED_NAMED, unserved)),
        )


def _discard(nodes: dict[str, set[str]], key: str, node: str) -> None:
    """Remove a node, and the key with its last one."""
    nodes[key].discard(node)
    if not nodes[key]:
        del nodes[key]


def _top_reasons(reasons: Mapping[str, set[str]]) -> Mapping[str, set[str]]:
    """Return at most MAX_REASONS reasons: those of the most nodes, and the rest as one."""
    if len(reasons) <= MAX_REASONS:
        return reasons
    first = nsmallest(MAX_REASONS - 1, reasons, key=lambda reason: (-len(reasons[reason]), reason))
    # An agent may report this very word.
    named = {reason: reasons[reason] for reason in first if reason != OTHER_REASONS}
    return named | {OTHER_REASONS: set().union(*(reasons[reason] for reason in reasons.keys() - named.keys()))}


def _capped(nodes: set[str]) -> list[str]:
    more = len(nodes) - MAX_FAILED_NODES
    return [*nsmallest(MAX_FAILED_NODES, nodes), *([f"and {more} more"] if more > 0 else [])]
