"""Report on each part of the topology: a condition, and an Event when it changes. Pure.

No message has content of a provider. Names of HyperNodes, which can be names of switches, stand in details only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gkm.api.grammar import count_of, listed
from gkm.api.topology_settings import TopologyGuard
from gkm.api.topology_status import ProviderState, ProviderStatus, TopologyReason
from gkm.topology.trees.conflicts import Conflict
from gkm.topology.trees.guard import GuardState

PROVIDERS, TREE, CONFLICTS = "ProvidersServing", "TreeApproved", "NoConflicts"
_SHOWN = 5
_GOOD = frozenset(
    {
        TopologyReason.PROVIDERS_SERVING,
        TopologyReason.TREE_APPROVED,
        TopologyReason.UP_TO_DATE,
        TopologyReason.NO_CONFLICTS,
    }
)


class Blocked(Exception):
    """A problem that stops a write, and that GKM cannot or must not solve; the message has the remedy."""

    def __init__(self, reason: TopologyReason, message: str, *, detail: str = "", after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = detail
        self.after = after


class PartFinding(NamedTuple):
    """The state of one part of the topology: the type, status, reason and message of its condition.

    `detail` stands in the condition only, and not in logs and Events. An Event is sent when reason or `occasion`
    change.
    """

    type: str
    reason: TopologyReason
    message: str = ""
    detail: str = ""
    occasion: str = ""

    @property
    def good(self) -> bool:
        """Return whether the part has no problem."""
        return self.reason in _GOOD

    @property
    def text(self) -> str:
        """Return the message for the condition: message and detail."""
        return f"{self.message}: {self.detail}" if self.detail else self.message


def of_providers(reports: Sequence[ProviderStatus], waits_for: Iterable[str]) -> PartFinding:
    """Return the finding for the condition ProvidersServing: whether every provider serves a tree."""
    starting = sorted(waits_for)
    failed = [report for report in reports if report.state in (ProviderState.FAILED, ProviderState.STALE)]
    waits = ""
    if starting:
        waits = f"waits for {listed(starting, _SHOWN)}; GKM does not write before all providers have served"
    if failed:
        texts = [f"{report.name} {report.reason}" for report in failed]
        message = f"provider {listed(texts, _SHOWN)}" + (f"; {waits}" if waits else "")
        names = ",".join(report.name for report in failed)
        return PartFinding(PROVIDERS, TopologyReason.PROVIDER_FAILED, message, occasion=names)
    return PartFinding(
        PROVIDERS, TopologyReason.PROVIDERS_STARTING if waits else TopologyReason.PROVIDERS_SERVING, waits
    )


def of_guard(state: GuardState, settings: TopologyGuard, *, built: bool) -> PartFinding:
    """Return the finding for the condition TreeApproved: whether the guard approves the present tree."""
    if not built:
        return PartFinding(TREE, TopologyReason.NOT_CHECKED, "no tree has been built yet")
    if not state.tripped:
        return PartFinding(TREE, TopologyReason.TREE_APPROVED)
    lost = state.losses
    message = (
        f"{len(lost.nodes)} of {count_of(lost.placed, 'placed node')} would lose a domain or its other nodes, "
        "with those of the last day, which is more than "
        f"{settings.percent} %; GKM does not write before {count_of(settings.rounds, 'round')} with the same result, "
        f"{settings.interval_seconds:g} s apart (now round {state.rounds}). If it is wrong, check labels and providers"
    )
    return PartFinding(TREE, TopologyReason.GUARD_TRIPPED, message)


def of_conflicts(conflicts: Sequence[Conflict], others: Mapping[str, int]) -> PartFinding:
    """Return the finding about conflicts with HyperNodes of other owners; `others` counts these HyperNodes by owner."""
    beside = f"HyperNodes beside GKM's: {_counted(others)}" if others else ""
    if not conflicts:
        return PartFinding(CONFLICTS, TopologyReason.NO_CONFLICTS, beside, occasion=",".join(sorted(others)))
    kinds = Counter(str(conflict.kind) for conflict in conflicts)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    message = f"{counts}; {beside}" if beside else counts
    more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    detail = "; ".join([conflict.message for conflict in conflicts[:_SHOWN]]) + more
    occasion = ",".join(f"{conflict.kind}/{conflict.about}" for conflict in conflicts)
    return PartFinding(CONFLICTS, TopologyReason.HYPERNODE_CONFLICT, message, detail, occasion)


def _counted(others: Mapping[str, int]) -> str:
    """Return the number of HyperNodes of each source, as its label volcano.sh/network-topology-source names it."""
    return listed([f"{count} of {source or 'no source'}" for source, count in sorted(others.items())], _SHOWN)
