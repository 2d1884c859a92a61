"""NodeFabric, the labels of the Node and the survey of the subnet in the Kubernetes API, written only on change.

NodeFabric and the ConfigMap of the survey use server-side apply. The labels use a merge patch with GKM's keys alone,
computed from the current Node, so the sink notices and repairs labels that another client changed or removed.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import API_VERSION, timestamp
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from msgspec import structs

from gkm_agent.fabric.labels import WantedLabels, label_patch
from gkm_agent.fabric.objects import HEALTHY, fabric_object, healthy, survey_name, survey_object
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.source import OWN_NODE, NodeView
from gkm_agent.kubernetes.status_sink import FIELD_MANAGER, api_errors, apply_with_status, known_owner
from gkm_agent.report.objects import with_condition, with_generation, without_conditions

_LOG = logging.getLogger(__name__)

NODEFABRICS: Resource[NodeFabric] = Resource(
    API_VERSION, "NodeFabric", "nodefabrics", namespaced=False, type=NodeFabric
)


class _Written(NamedTuple):
    """The status of the object without its time, the time of its last change, and the uid of its Node ("": unknown)."""

    status: NodeFabricStatus
    updated: str
    uid: str


_NOTHING = _Written(NodeFabricStatus(), "", "")


class KubernetesFabricSink:
    """The FabricSink of the Kubernetes API. `owner` returns the last seen Node of this agent, None if unknown."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._written: _Written | None = None
        self._patched: tuple[str, WantedLabels] | None = None
        self._stored_survey = ""

    def publish(self, report: FabricReport) -> None:
        """See FabricSink."""
        owner = known_owner(self._owner(), self._node)
        with api_errors():
            # The labels first, because schedulers act on them.
            self._label(owner, report.labels)
            self._publish_status(owner, report.status)

    def invalidate(self) -> None:
        """See FabricSink."""
        self._written = self._written and self._written._replace(uid="")
        self._patched = None
        self._stored_survey = ""

    def survey(self, packed: bytes) -> None:
        """See FabricSink."""
        owner = known_owner(self._owner(), self._node)
        digest = f"{owner.metadata.uid} {hashlib.sha256(packed).hexdigest()}"
        if digest == self._stored_survey:
            return
        name = survey_name(self._node)
        if name is None:
            raise NotWritten(f"the name of the Node {self._node[:60]}… is too long for the name of a ConfigMap")
        with api_errors():
            value = survey_object(self._node, name, packed, owner.metadata.uid)
            self._api.apply(CONFIGMAPS, value, field_manager=FIELD_MANAGER)
        self._stored_survey = digest

    def _label(self, owner: NodeView, wanted: WantedLabels) -> None:
        version = owner.metadata.resource_version
        if self._patched == (version, wanted):
            # The watch has not delivered the sink's own patch yet.
            return
        changed = label_patch(owner.metadata.labels, wanted)
        if changed:
            self._api.merge(OWN_NODE, self._node, {"metadata": {"labels": changed}})
            _LOG.info("Node labels patched", extra=fields(labels=changed))
            self._patched = (version, wanted)

    def _publish_status(self, owner: NodeView, status: NodeFabricStatus) -> None:
        if self._written is None:
            self._written = self._current(owner)
        written, before = self._written, self._written.status
        uid, now = owner.metadata.uid, timestamp()
        current = structs.replace(status, observed_generation=before.observed_generation)
        new = with_condition(current, HEALTHY, healthy(status), before.conditions, now)
        if (before, written.uid) == (new, uid) and new.observed_generation:
            return
        updated = written.updated if written.updated and without_conditions(before) == status else now
        generation = apply_with_status(self._api, NODEFABRICS, fabric_object(self._node, new, updated, uid))
        self._written = _Written(with_generation(new, generation), updated, uid)

    def _current(self, owner: NodeView) -> _Written:
        """Return the content of the object from before the start, so that an unchanged status causes no write."""
        try:
            current = self._api.get(NODEFABRICS, self._node)
        except ApiError as error:
            # An object of an older schema is unreadable; the sink writes it anew.
            if error.not_found or (error.status == NO_RESPONSE and error.reason == "Unreadable"):
                return _NOTHING
            raise
        owned = any(reference.uid == owner.metadata.uid for reference in current.metadata.owner_references)
        status = structs.replace(current.status, last_updated=None)
        return _Written(status, current.status.last_updated or "", owner.metadata.uid if owned else "")
