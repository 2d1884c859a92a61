"""Report the state of the topology: write the ConfigMap `gkm-topology`, and an Event for each changed condition.

It is written on change, at most every INTERVAL_SECONDS, and again after REPEAT_SECONDS. No component depends on it.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from gkm.api.meta import FALSE, TRUE, Condition, timestamp, with_condition
from gkm.api.topology_settings import Topology
from gkm.api.topology_status import (
    CONFIG_MAP,
    MAX_CONFLICTS,
    MAX_QUARANTINED,
    STATUS_KEY,
    ProviderState,
    QuarantinedNode,
    ReportedConflict,
    TopologyReason,
    TopologyStatus,
    parse_status,
)
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CONFIGMAPS
from msgspec import structs

from gkm_operator import metrics
from gkm_operator.hypernodes import findings
from gkm_operator.hypernodes.findings import PartFinding
from gkm_operator.hypernodes.sources import Source
from gkm_operator.hypernodes.tree_reconciler import TreeReconciler
from gkm_operator.hypernodes.writes.hypernodes import HyperNodeWriter
from gkm_operator.hypernodes.writes.sinks import TreeSink
from gkm_operator.last_write import LastWrite

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overview:
    """Collects the state of all parts of the topology for the report. Thread-safe."""

    settings: Topology
    sources: Sequence[Source]
    tree: TreeReconciler
    sinks: Iterable[TreeSink]
    writer: HyperNodeWriter

    def findings(self) -> list[PartFinding]:
        """Return the finding for the condition of each part."""
        state = self.tree.state
        reports = [source.report() for source in self.sources]
        built = state.desired is not None
        return [
            findings.of_providers(reports, state.waits_for),
            findings.of_guard(state.guard, self.settings.guard, built=built),
            *(sink.finding for sink in self.sinks),
            *self._conflicts(),
        ]

    def _conflicts(self) -> Iterator[PartFinding]:
        if self.settings.hyper_nodes.enabled:
            yield findings.of_conflicts(self.writer.conflicts, self.writer.others)

    def status(self) -> TopologyStatus:
        """Return the topology's status without its conditions."""
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
        """Update the metrics about the states of providers and about conflicts."""
        metrics.TOPOLOGY_CONFLICTS.set(len(self.writer.conflicts))
        for source in self.sources:
            found = source.report().state
            for state in ProviderState:
                metrics.TOPOLOGY_PROVIDER_STATE.labels(source.name, state).set(found is state)


REPORTER = "gkm.io/topology"
"""The reporting controller of every Event, and the field manager of the ConfigMap."""
INTERVAL_SECONDS = 5.0
_PASSING = frozenset({TopologyReason.NOT_CHECKED, TopologyReason.PROVIDERS_STARTING, TopologyReason.WRITING})


class TopologyReport:
    """Writes the ConfigMap `gkm-topology` and Events about it. Only one thread may use it."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        instance: str,
        overview: Overview,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._recorder = Recorder(api, REPORTER, instance)
        self._overview = overview
        self._conditions: dict[str, Condition] | None = None
        self._announced: dict[str, tuple[str, str | None]] = {}
        self._written = LastWrite[str]()
        self._next = 0.0

    def write(self, now: float) -> float | None:
        """Write the ConfigMap `gkm-topology` if it has changed, or was written REPEAT_SECONDS ago, and a write is due.

        `now` is monotonic. Return the seconds until it may be written, None if it is current.

        Raises:
            ApiError: the API server refuses the write, or does not respond.
        """
        if (seconds := self._next - now) > 0:
            return seconds
        if self._conditions is None:
            self._conditions = self._stored()
            self._announced = {one.type: (one.reason, None) for one in self._conditions.values()}
        found = self._overview.findings()
        conditions = list(self._conditions.values())
        for finding in found:
            status = TRUE if finding.good else FALSE
            new = Condition(finding.type, status, finding.reason, finding.text, timestamp())
            conditions = with_condition(conditions, new)
        types = {finding.type for finding in found}
        conditions = [condition for condition in conditions if condition.type in types]
        report = structs.replace(self._overview.status(), conditions=tuple(conditions))
        text = msgspec.json.format(msgspec.json.encode(report), indent=1).decode()
        if self._written.is_current(text, now):
            return None
        self._next = now + INTERVAL_SECONDS
        meta = {"name": CONFIG_MAP, "namespace": self._namespace, "labels": {"app.kubernetes.io/part-of": "gkm"}}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {STATUS_KEY: text}}
        stored = self._api.apply(CONFIGMAPS, value, field_manager=REPORTER)
        self._written.record(text, now)
        self._conditions = {condition.type: condition for condition in conditions}
        self._emit(found, stored)
        return None

    def _stored(self) -> dict[str, Condition]:
        """Return the conditions of the process before this one: what has not changed since is no transition."""
        stored = self._api.find(CONFIGMAPS, CONFIG_MAP, self._namespace)
        if stored is None:
            return {}
        data = stored.get("data", {})
        try:
            found = parse_status(data.get(STATUS_KEY, "") if isinstance(data, dict) else "").conditions
        except ValueError as error:
            _LOG.warning(
                "topology report of the former leader cannot be read, ignored",
                extra=fields(config_map=CONFIG_MAP, why=str(error)[:200]),
            )
            return {}
        return {condition.type: condition for condition in found}

    def _emit(self, findings: Iterable[PartFinding], stored: dict[str, Any]) -> None:
        uid = stored.get("metadata", {}).get("uid", "")
        regarding = Regarding("v1", "ConfigMap", CONFIG_MAP, self._namespace, uid)
        for finding in findings:
            known = self._announced.get(finding.type)
            # A passing state is no news, nor is what was never wrong.
            if finding.reason in _PASSING or known == (finding.reason, finding.occasion):
                continue
            self._announced[finding.type] = (finding.reason, finding.occasion)
            # The occasion of an earlier process is not known: the first one is taken as announced.
            if known == (finding.reason, None) or (known is None and finding.good):
                continue
            note = finding.message or f"{finding.type} is {TRUE}"
            body = EventBody("Normal" if finding.good else "Warning", finding.reason, "Reconcile", note)
            self._recorder.emit(regarding, body, f"{timestamp()}/{finding.occasion}")
            level = logging.INFO if finding.good else logging.WARNING
            log_fields = fields(condition=finding.type, reason=finding.reason, why=finding.message)
            _LOG.log(level, "topology condition changed", extra=log_fields)
