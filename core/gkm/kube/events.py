"""Kubernetes Events about our objects: told on transitions, never relied on, never a reason to fail."""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import EVENTS

_LOG = logging.getLogger(__name__)

MAX_NOTE_BYTES = 1024
"""events.k8s.io/v1: note is below 1 kB."""

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about; an empty namespace means a cluster-wide one."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Told:
    """What is told: reason and action are words in CamelCase, note is a sentence."""

    kind: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


def event(regarding: Regarding, told: Told, controller: str, instance: str, moment: datetime) -> Mapping[str, Any]:
    """Return the Event object. Events about cluster-wide objects live in `default`, as the API demands."""
    note = told.note.encode()[: MAX_NOTE_BYTES - 1].decode(errors="ignore")
    namespace = regarding.namespace or "default"
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": f"{regarding.name[:200]}.{secrets.token_hex(8)}", "namespace": namespace},
        "eventTime": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": controller,
        "reportingInstance": instance[:128],
        "type": told.kind,
        "reason": told.reason,
        "action": told.action,
        "note": note,
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
            **({"namespace": regarding.namespace} if regarding.namespace else {}),
        },
    }


class Recorder:
    """Sends events; the same thing about the same object is told once, until something else is told about it."""

    def __init__(self, api: Api, controller: str, instance: str) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._last: OrderedDict[tuple[str, str], Told] = OrderedDict()
        self._lock = Lock()

    def tell(self, regarding: Regarding, told: Told) -> None:
        """Send an event, unless it was the last one of this action about the object."""
        key = (regarding.uid, told.action)
        with self._lock:
            if self._last.get(key) == told:
                return
            self._last[key] = told
            self._last.move_to_end(key)
            if len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
        try:
            self._api.create(EVENTS, event(regarding, told, self._controller, self._instance, datetime.now(UTC)))
        except ApiError as error:
            name = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
            said = fields(object=f"{regarding.kind} {name}", reason=told.reason, why=str(error))
            _LOG.warning("event not sent", extra=said)
