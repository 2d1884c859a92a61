"""The sums of one cache over the nodes that report it: a node is added and taken back, nothing is counted anew."""

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
"""At most so many reasons in status.failedNodeConditions: they are free text of agents (design/aggregation.md)."""
OTHER_REASONS = "Other"
MAX_SILENT_NAMED = 3


class CacheKey(NamedTuple):
    """Which cache; the namespace is empty for a ClusterGKMCache."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as people read it and logs show it, in every process the same."""
        return str(CacheRef(self.namespace or None, self.name))


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """What the nodes say of a cache, for one digest.

    `failures` is status.failedNodeConditions; of the `failed` nodes so many are `incompatible`. `silences` names a few
    of the `silent` nodes, and says why each is.
    """

    total: int = 0
    ready: int = 0
    failed: int = 0
    pods: int = 0
    failures: Mapping[str, list[str]] = field(default_factory=dict)
    silent: int = 0
    silences: Mapping[str, str] = field(default_factory=dict)
    incompatible: int = 0


class CacheTotals:
    """The sums of one cache; a node whose standing is GONE is never added."""

    def __init__(self) -> None:
        self._total = 0
        self._pods = 0
        self._ready: Counter[str] = Counter()
        self._failed: dict[str, dict[str, set[str]]] = {}
        self._incompatible: Counter[str] = Counter()
        self._silent: dict[str, Liveness] = {}

    def add(self, node: str, part: NodeReport, standing: Liveness) -> None:
        """Count a node. Only one that answers is ready; pods and failures of a silent one are as it last said."""
        self._total += 1
        self._pods += part.pods
        if standing is not Liveness.ANSWERS:
            self._silent[node] = standing
        elif part.ready:
            self._ready[part.digest] += 1
        if part.failure:
            self._failed.setdefault(part.digest, {}).setdefault(part.failure, set()).add(node)
        if part.incompatible:
            self._incompatible[part.digest] += 1

    def remove(self, node: str, part: NodeReport, standing: Liveness) -> None:
        """Take back exactly what `add` counted."""
        self._total -= 1
        self._pods -= part.pods
        if standing is not Liveness.ANSWERS:
            del self._silent[node]
        elif part.ready:
            self._ready[part.digest] -= 1
            if not self._ready[part.digest]:
                del self._ready[part.digest]
        if part.failure:
            reasons = self._failed[part.digest]
            reasons[part.failure].discard(node)
            if not reasons[part.failure]:
                del reasons[part.failure]
            if not reasons:
                del self._failed[part.digest]
        if part.incompatible:
            self._incompatible[part.digest] -= 1
            if not self._incompatible[part.digest]:
                del self._incompatible[part.digest]

    @property
    def empty(self) -> bool:
        """Return whether no node reports the cache."""
        return not self._total

    def summary(self, digest: str | None) -> CacheSummary:
        """Return the sums for a digest.

        Ready counts for this very digest only: a node that still has the old one of an updated cache is not ready
        for the new. A failure counts for it, and for a node that failed before it knew any digest.
        """
        reasons: dict[str, set[str]] = {}
        counted = {digest or "", ""}
        for known in counted:
            for reason, nodes in self._failed.get(known, {}).items():
                reasons.setdefault(reason, set()).update(nodes)
        shown = _top_reasons(reasons)
        return CacheSummary(
            total=self._total,
            ready=self._ready[digest] if digest else 0,
            failed=sum(len(nodes) for nodes in reasons.values()),
            pods=self._pods,
            failures={reason: _capped(shown[reason]) for reason in sorted(shown)},
            silent=len(self._silent),
            silences={name: self._silent[name].value for name in nsmallest(MAX_SILENT_NAMED, self._silent)},
            incompatible=sum(self._incompatible[known] for known in counted),
        )


def _top_reasons(reasons: Mapping[str, set[str]]) -> Mapping[str, set[str]]:
    """Return at most MAX_REASONS reasons: those of the most nodes, and the rest as one."""
    if len(reasons) <= MAX_REASONS:
        return reasons
    first = nsmallest(MAX_REASONS - 1, reasons, key=lambda reason: (-len(reasons[reason]), reason))
    # An agent may say this very word.
    kept = {reason: reasons[reason] for reason in first if reason != OTHER_REASONS}
    return kept | {OTHER_REASONS: set().union(*(reasons[reason] for reason in reasons.keys() - kept.keys()))}


def _capped(nodes: set[str]) -> list[str]:
    more = len(nodes) - MAX_FAILED_NODES
    return [*nsmallest(MAX_FAILED_NODES, nodes), *([f"and {more} more"] if more > 0 else [])]
