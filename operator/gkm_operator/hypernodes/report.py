"""Writes the ConfigMap `gkm-topology`, and an Event about it for each condition that changes.

It is written on change, at most every INTERVAL_SECONDS. No component depends on it.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from gkm.api.meta import FALSE, TRUE, Condition, timestamp, with_condition
from gkm.api.topology_status import CONFIG_MAP, STATUS_KEY, TopologyReason, parse_status
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CONFIGMAPS
from msgspec import structs

from gkm_operator.hypernodes.findings import PartFinding
from gkm_operator.hypernodes.overview import Overview

_LOG = logging.getLogger(__name__)
REPORTER = "gkm.io/topology"
"""The reporting controller of every Event, and the field manager of the ConfigMap."""
INTERVAL_SECONDS = 5.0
_PASSING = frozenset({TopologyReason.NOT_CHECKED, TopologyReason.PROVIDERS_STARTING, TopologyReason.WRITING})


class TopologyReport:
    """For one thread."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        instance: str,
        overview: Overview,
        *,
        clock: Clock = time.monotonic,
        now: Callable[[], str] = timestamp,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._recorder = Recorder(api, REPORTER, instance)
        self._overview = overview
        self._clock = clock
        self._now = now
        self._conditions: dict[str, Condition] | None = None
        self._announced: dict[str, tuple[str, str | None]] = {}
        self._written = ""
        self._next = clock()

    def write(self) -> float | None:
        """Write the report if it has changed; return the seconds until it may be written, None if it is written.

        Raises:
            ApiError: the API server refuses the write, or does not respond.
        """
        if (seconds := self._next - self._clock()) > 0:
            return seconds
        if self._conditions is None:
            self._conditions = self._stored()
            self._announced = {one.type: (one.reason, None) for one in self._conditions.values()}
        found = self._overview.findings()
        conditions = list(self._conditions.values())
        for finding in found:
            status = TRUE if finding.good else FALSE
            new = Condition(finding.type, status, finding.reason, finding.text, self._now())
            conditions = with_condition(conditions, new)
        types = {finding.type for finding in found}
        conditions = [condition for condition in conditions if condition.type in types]
        report = structs.replace(self._overview.status(), conditions=tuple(conditions))
        text = msgspec.json.format(msgspec.json.encode(report), indent=1).decode()
        if text == self._written:
            return None
        self._next = self._clock() + INTERVAL_SECONDS
        meta = {"name": CONFIG_MAP, "namespace": self._namespace, "labels": {"app.kubernetes.io/part-of": "gkm"}}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {STATUS_KEY: text}}
        stored = self._api.apply(CONFIGMAPS, value, field_manager=REPORTER)
        self._written, self._conditions = text, {condition.type: condition for condition in conditions}
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
            _LOG.warning("report cannot be read", extra=fields(config_map=CONFIG_MAP, why=str(error)[:200]))
            return {}
        return {condition.type: condition for condition in found}

    def _emit(self, findings: Iterable[PartFinding], stored: dict[str, Any]) -> None:
        uid = stored.get("metadata", {}).get("uid", "")
        regarding = Regarding("v1", "ConfigMap", CONFIG_MAP, self._namespace, uid)
        for finding in findings:
            known = self._announced.get(finding.type)
            # A passing state is no news, nor is what was never wrong. The occasion of an earlier process is not known.
            if finding.reason in _PASSING or known in ((finding.reason, finding.occasion), (finding.reason, None)):
                continue
            self._announced[finding.type] = (finding.reason, finding.occasion)
            if known is None and finding.good:
                continue
            note = finding.message or f"{finding.type} is {TRUE}"
            body = EventBody("Normal" if finding.good else "Warning", finding.reason, "Reconcile", note)
            self._recorder.emit(regarding, body, f"{self._now()}/{finding.occasion}")
            level = logging.INFO if finding.good else logging.WARNING
            log_fields = fields(condition=finding.type, reason=finding.reason, why=finding.message)
            _LOG.log(level, "topology changed", extra=log_fields)
