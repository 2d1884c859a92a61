"""Sums over the nodes that report a cache, kept by differences: an event costs what changed, not what there is."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from threading import Lock
from typing import NamedTuple

from gkm.api.caches import MAX_FAILED_NODES
from gkm.hoststate.names import CacheRef

from gkm_operator.caches.contributions import Contribution


class CacheKey(NamedTuple):
    """Which cache; the namespace is empty for a ClusterGKMCache."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as people read it and logs show it, in every process the same."""
        return str(CacheRef(self.namespace or None, self.name))


@dataclass(frozen=True, slots=True)
class Summary:
    """What the nodes say of a cache, for one digest. `failures` is status.failedNodeConditions."""

    total: int = 0
    ready: int = 0
    failed: int = 0
    pods: int = 0
    failures: Mapping[str, list[str]] = field(default_factory=dict)


class Tally:
    """The sums of one cache."""

    def __init__(self) -> None:
        self._total = 0
        self._pods = 0
        self._ready: Counter[str] = Counter()
        self._failed: dict[str, dict[str, set[str]]] = {}

    def add(self, node: str, part: Contribution) -> None:
        """Count a node."""
        self._total += 1
        self._pods += part.pods
        if part.ready:
            self._ready[part.digest] += 1
        if part.failure:
            self._failed.setdefault(part.digest, {}).setdefault(part.failure, set()).add(node)

    def remove(self, node: str, part: Contribution) -> None:
        """Take back exactly what `add` counted."""
        self._total -= 1
        self._pods -= part.pods
        if part.ready:
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

    @property
    def empty(self) -> bool:
        """Return whether no node reports the cache."""
        return not self._total

    def summary(self, digest: str | None) -> Summary:
        """Return the sums for a digest.

        Ready counts for this very digest only: a node that still has the old one of an updated cache is not ready
        for the new. A failure counts for it, and for a node that failed before it knew any digest.
        """
        reasons: dict[str, set[str]] = {}
        for known in {digest or "", ""}:
            for reason, nodes in self._failed.get(known, {}).items():
                reasons.setdefault(reason, set()).update(nodes)
        return Summary(
            total=self._total,
            ready=self._ready[digest] if digest else 0,
            failed=sum(len(nodes) for nodes in reasons.values()),
            pods=self._pods,
            failures={reason: _capped(reasons[reason]) for reason in sorted(reasons)},
        )


class Fleet:
    """The tallies of all caches. Thread-safe: node objects of both kinds arrive from two threads."""

    def __init__(self) -> None:
        self._tallies: dict[CacheKey, Tally] = {}
        self._lock = Lock()

    def change(
        self, namespace: str, node: str, old: Mapping[str, Contribution], new: Mapping[str, Contribution]
    ) -> set[CacheKey]:
        """Replace a node's contributions in a namespace; return the caches whose sums that changed."""
        changed = set()
        with self._lock:
            for name in old.keys() | new.keys():
                before, after = old.get(name), new.get(name)
                if before == after:
                    continue
                key = CacheKey(namespace, name)
                changed.add(key)
                tally = self._tallies.setdefault(key, Tally())
                if before is not None:
                    tally.remove(node, before)
                if after is not None:
                    tally.add(node, after)
                if tally.empty:
                    del self._tallies[key]
        return changed

    def summary(self, key: CacheKey, digest: str | None) -> Summary:
        """Return the sums of a cache."""
        with self._lock:
            tally = self._tallies.get(key)
            return tally.summary(digest) if tally else Summary()


def _capped(nodes: set[str]) -> list[str]:
    more = len(nodes) - MAX_FAILED_NODES
    return [*nsmallest(MAX_FAILED_NODES, nodes), *([f"and {more} more"] if more > 0 else [])]
