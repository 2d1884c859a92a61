"""Compute the condition NVLinkFabricHealthy of a HyperNode: how many nodes of an NVLink domain are impaired.

It also says since when. A node counts in the domain that its agent reported last, also when a fault took the domain
of the node. Pure, but for the index, which is thread-safe.
"""

from collections.abc import Mapping
from threading import Lock

from gkm.api.grammar import agree, count_of
from gkm.api.meta import FALSE, TRUE, UNKNOWN
from gkm.api.node_names import fold_sorted
from gkm.topology.nodes import FABRIC_HEALTHY, NodeCondition

from gkm_operator.fabric.conditions import MAX_MESSAGE, ReportedFabric

IMPAIRED, NOT_KNOWN, ALL_HEALTHY = "NodesImpaired", "NodesNotKnown", "NodesHealthy"
_WORST_FIRST = ((FALSE, IMPAIRED, "impaired"), (UNKNOWN, NOT_KNOWN, "not known"), (TRUE, ALL_HEALTHY, "healthy"))


def domain_condition(states: Mapping[str, NodeCondition]) -> NodeCondition | None:
    """Return the condition of an NVLink domain from the conditions of its nodes; None if it has no nodes.

    The worst status of a node decides. The domain has it since the first of these nodes has it; if all are healthy,
    since the last one is.
    """
    for status, reason, word in _WORST_FIRST:
        found = [name for name, state in states.items() if state.status == status]
        if found:
            times = [time for name in found if (time := states[name].last_transition_time)]
            since = (max if status == TRUE else min)(times, default=None)
            names = f": {fold_sorted(found)}" if status != TRUE else ""
            text = f"{len(found)} of {count_of(len(states), 'node')} {agree(len(found), 'is', 'are')} {word}{names}"
            return NodeCondition(FABRIC_HEALTHY, status, reason, text[:MAX_MESSAGE], since)
    return None


class DomainIndex:
    """Indexes nodes by NVLink domain, from changes of NodeFabrics."""

    def __init__(self) -> None:
        self._nodes: dict[str, set[str]] = {}
        self._lock = Lock()

    def change(self, old: ReportedFabric | None, new: ReportedFabric | None) -> set[str]:
        """Apply a change of a NodeFabric; return the domains whose condition may have changed."""
        with self._lock:
            if old is not None and old.domain:
                around = self._nodes.get(old.domain, set())
                around.discard(old.name)
                if not around:
                    self._nodes.pop(old.domain, None)
            if new is not None and new.domain:
                self._nodes.setdefault(new.domain, set()).add(new.name)
        return {found.domain for found in (old, new) if found is not None and found.domain}

    def nodes(self, domain: str) -> frozenset[str]:
        """Return the names of the nodes in an NVLink domain."""
        with self._lock:
            return frozenset(self._nodes.get(domain, ()))
