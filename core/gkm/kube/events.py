"""Kubernetes Events about objects of GKM, sent on transitions.

No component depends on them, and a failure to send one fails nothing else. The name of an Event contains a hash of its
content, so that several processes create it once.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import EVENTS

_LOG = logging.getLogger(__name__)

MAX_NOTE_BYTES = 1024
"""The limit of `note` in events.k8s.io/v1 is below 1 kB."""


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about; an empty namespace means a cluster-wide one."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class EventBody:
    """The content of an event: reason and action are in CamelCase, note is a sentence."""

    kind: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class Reporter:
    """The sender of events: a controller, and one process of it."""

    controller: str
    instance: str


def event_object(
    regarding: Regarding, body: EventBody, occasion: str, reporter: Reporter, moment: datetime
) -> Mapping[str, Any]:
    """Return the Event object. Events about cluster-wide objects are in the namespace `default`, as the API demands.

    Its name is a function of object, content and occasion, so that a second create of it conflicts.
    """
    body = replace(body, note=escape(body.note))
    note = body.note.encode()[: MAX_NOTE_BYTES - 1].decode(errors="ignore")
    namespace = regarding.namespace or "default"
    # The API server refuses a name whose cut prefix ends in a hyphen or a dot.
    prefix = regarding.name[:200].rstrip("-.")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": f"{prefix}.{_name_suffix(regarding, body, occasion)}", "namespace": namespace},
        "eventTime": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance[:128],
        "type": body.kind,
        "reason": body.reason,
        "action": body.action,
        "note": note,
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
            **({"namespace": regarding.namespace} if regarding.namespace else {}),
        },
    }


def _name_suffix(regarding: Regarding, body: EventBody, occasion: str) -> str:
    parts = (regarding.uid, body.action, body.reason, body.note, occasion)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class Recorder:
    """Sends events."""

    def __init__(self, api: Api, reporter: Reporter) -> None:
        self._api = api
        self._reporter = reporter

    def emit(self, regarding: Regarding, body: EventBody, occasion: str) -> None:
        """Send an event, unless this or an earlier process sent it for the same `occasion`."""
        try:
            self._api.create(EVENTS, event_object(regarding, body, occasion, self._reporter, datetime.now(UTC)))
        except ApiError as error:
            if error.conflict:
                return
            name = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
            log_fields = fields(object=f"{regarding.kind} {name}", reason=body.reason, why=str(error))
            _LOG.warning("event not sent", extra=log_fields)
