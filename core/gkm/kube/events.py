"""Kubernetes Events about objects of GKM, sent on transitions.

No component depends on them, and a failure to send one has no further effect. The name of an Event contains a hash of
its content, so that several processes create it once.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
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
    """The object that an Event is about; an empty namespace means a cluster-wide object."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class EventBody:
    """The text of an Event: reason and action in CamelCase, note as a sentence."""

    kind: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class Recorder:
    """Sends the Kubernetes Events of one controller; `instance` names the process."""

    api: Api
    controller: str
    instance: str

    def event(self, regarding: Regarding, body: EventBody, occasion: str, moment: datetime) -> Mapping[str, Any]:
        """Return the Event as JSON; for cluster-wide objects it is in the namespace `default`, as the API requires.

        Its name is a function of object, content and occasion, so that a second create of it conflicts.
        """
        note = escape(body.note)
        content = (regarding.uid, body.action, body.reason, note, occasion)
        suffix = hashlib.sha256("\0".join(content).encode()).hexdigest()[:16]
        # The API server refuses a name whose cut prefix ends in a hyphen or a dot.
        prefix = regarding.name[:200].rstrip("-.")
        return {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {"name": f"{prefix}.{suffix}", "namespace": regarding.namespace or "default"},
            "eventTime": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self.controller,
            "reportingInstance": self.instance[:128],
            "type": body.kind,
            "reason": body.reason,
            "action": body.action,
            "note": note.encode()[: MAX_NOTE_BYTES - 1].decode(errors="ignore"),
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.name,
                "uid": regarding.uid,
                **({"namespace": regarding.namespace} if regarding.namespace else {}),
            },
        }

    def emit(self, regarding: Regarding, body: EventBody, occasion: str) -> None:
        """Send an Event about an object, unless this or an earlier process has sent it for the same `occasion`."""
        try:
            self.api.create(EVENTS, self.event(regarding, body, occasion, datetime.now(UTC)))
        except ApiError as error:
            if error.conflict:
                return
            name = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
            log_fields = fields(object=f"{regarding.kind} {name}", reason=body.reason, why=str(error))
            _LOG.warning("Kubernetes Event not sent", extra=log_fields)
