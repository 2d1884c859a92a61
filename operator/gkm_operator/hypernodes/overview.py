"""The state of all parts of the topology, as findings and as the report for people. Sends no request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gkm.api.topology_settings import Topology
from gkm.api.topology_status import (
    MAX_CONFLICTS,
    MAX_QUARANTINED,
    ProviderState,
    QuarantinedNode,
    ReportedConflict,
    TopologyStatus,
)

from gkm_operator import metrics
from gkm_operator.hypernodes import findings
from gkm_operator.hypernodes.findings import PartFinding
from gkm_operator.hypernodes.sources import Source
from gkm_operator.hypernodes.tree_reconciler import TreeReconciler
from gkm_operator.hypernodes.writes.hypernodes import HyperNodeWriter
from gkm_operator.hypernodes.writes.sinks import TreeSink


@dataclass(frozen=True, slots=True)
class Overview:
    """Reads the parts; thread-safe."""

    settings: Topology
    sources: Sequence[Source]
    tree: TreeReconciler
    sinks: Iterable[TreeSink]
    writer: HyperNodeWriter

    def findings(self) -> list[PartFinding]:
        """Return the report about each part."""
        state = self.tree.state
        reports = [source.report() for source in self.sources]
        built = state.desired is not None
        return [
            findings.of_providers(reports, state.waits_for),
            findings.of_guard(state.guard, self.settings.guard, built=built),
            *(sink.finding for sink in self.sinks),
            *([findings.of_conflicts(self.writer.conflicts)] if self.settings.hyper_nodes.enabled else []),
        ]

    def status(self) -> TopologyStatus:
        """Return the report without its conditions."""
        state, conflicts = self.tree.state, self.writer.conflicts
        reports = tuple(source.report() for source in self.sources)
        shown = tuple(ReportedConflict(one.kind, one.message) for one in conflicts[:MAX_CONFLICTS])
        if state.desired is None:
            return TopologyStatus(providers=reports, conflicts=shown)
        desired, tree = state.desired, state.desired.tree
        return TopologyStatus(
            version=desired.version,
            providers=reports,
            nodes=len(tree.nodes),
            placed=desired.placed(),
            domains=desired.domains(),
            contradictions=len(tree.contradictions),
            quarantined_nodes=len(tree.quarantined),
            quarantined=tuple(QuarantinedNode(one.node, one.why) for one in tree.quarantined[:MAX_QUARANTINED]),
            conflicts=shown,
        )

    def record(self) -> None:
        """Record what metrics show of providers and conflicts."""
        metrics.TOPOLOGY_CONFLICTS.set(len(self.writer.conflicts))
        for source in self.sources:
            found = source.report().state
            for state in ProviderState:
                metrics.TOPOLOGY_PROVIDER_STATE.labels(source.name, state).set(found is state)
