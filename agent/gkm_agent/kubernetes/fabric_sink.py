"""NodeFabric, the labels of our Node and the survey of the subnet in the Kubernetes API: written on change only.

NodeFabric and the ConfigMap by server-side apply; the labels by a merge patch that names our keys and no others, so
that labels which somebody changed or removed are seen in the Node as it is, and mended.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import API_VERSION, timestamp
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import NODES, Json, Resource
from msgspec import structs

from gkm_agent.fabric.conditions import with_conditions, without_conditions
from gkm_agent.fabric.labels import WantedLabels, label_patch
from gkm_agent.fabric.objects import fabric_object, manifest, survey_name, survey_object
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces.sink import NotWritten
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.kubernetes.status_sink import FIELD_MANAGER

_LOG = logging.getLogger(__name__)

NODEFABRICS: Resource[NodeFabric] = Resource(
    API_VERSION, "NodeFabric", "nodefabrics", namespaced=False, type=NodeFabric
)
CONFIGMAPS: Resource[Json] = Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=Json)
_OWN_NODE: Resource[NodeView] = Resource(NODES.api_version, NODES.kind, NODES.plural, namespaced=False, type=NodeView)


class _Said(NamedTuple):
    """What the object says, without the moment; since when; and of which Node it is, "" where that is not known."""

    status: NodeFabricStatus
    moment: str
    uid: str


_NOTHING = _Said(NodeFabricStatus(), "", "")


class KubernetesFabricSink:
    """The FabricSink of the Kubernetes API. `owner` returns our Node as it was last seen, None when it is not known."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._said: _Said | None = None
        self._asked = False
        self._patched: tuple[str, WantedLabels] | None = None
        self._kept = ""

    def publish(self, report: FabricReport) -> None:
        """See FabricSink."""
        owner = self._known_owner()
        with _written():
            # The labels first: they are what schedulers act on.
            self._label(owner, report.labels)
            self._publish_status(owner, report.status)

    def doubt(self) -> None:
        """See FabricSink."""
        self._said = self._said and self._said._replace(uid="")
        self._patched = None
        self._kept = ""

    def survey(self, packed: bytes) -> None:
        """See FabricSink."""
        owner = self._known_owner()
        digest = f"{owner.metadata.uid} {hashlib.sha256(packed).hexdigest()}"
        if digest == self._kept:
            return
        name = survey_name(self._node)
        if name is None:
            raise NotWritten(f"the name of the Node {self._node[:60]}… is too long for a ConfigMap of its own")
        with _written():
            value = survey_object(self._node, name, packed, owner.metadata.uid)
            self._api.apply(CONFIGMAPS, value, field_manager=FIELD_MANAGER)
        self._kept = digest

    def _known_owner(self) -> NodeView:
        owner = self._owner()
        if owner is None:
            raise NotWritten(f"the Node {self._node} is not known yet")
        return owner

    def _label(self, owner: NodeView, wanted: WantedLabels) -> None:
        seen = owner.metadata.resource_version
        if self._patched == (seen, wanted):
            # Our own patch has not come back through the watch yet.
            return
        changed = label_patch(owner.metadata.labels, wanted)
        if changed:
            self._api.merge(_OWN_NODE, self._node, {"metadata": {"labels": changed}})
            _LOG.info("labels of the Node written", extra=fields(labels=changed))
            self._patched = (seen, wanted)

    def _publish_status(self, owner: NodeView, status: NodeFabricStatus) -> None:
        if not self._asked:
            self._said, self._asked = self._found(owner), True
        said, uid = self._said or _NOTHING, owner.metadata.uid
        before, now = said.status.conditions, timestamp()
        new = with_conditions(status, before, said.status.observed_generation, now)
        if (said.status, said.uid) == (new, uid) and new.observed_generation:
            return
        whole = manifest(fabric_object(self._node, new, now, uid))
        kind = {key: whole[key] for key in ("apiVersion", "kind")}
        there = self._apply({**kind, "metadata": whole["metadata"], "spec": whole["spec"]})
        new = with_conditions(status, before, there.metadata.generation, now)
        moment = said.moment if without_conditions(said.status) == status and said.moment else now
        whole = manifest(fabric_object(self._node, new, moment, uid))
        self._apply({**kind, "metadata": {"name": self._node}, "status": whole["status"]}, "status")
        self._said = _Said(new, moment, uid)

    def _found(self, owner: NodeView) -> _Said | None:
        """Return what the object says since before we started, so that saying it again changes nothing."""
        try:
            there = self._api.get(NODEFABRICS, self._node)
        except ApiError as error:
            # One that cannot be read (an older schema) is written anew.
            if error.not_found or (error.status == NO_RESPONSE and error.reason == "Unreadable"):
                return None
            raise
        owned = any(reference.uid == owner.metadata.uid for reference in there.metadata.owner_references)
        status = structs.replace(there.status, last_updated=None)
        return _Said(status, there.status.last_updated or "", owner.metadata.uid if owned else "")

    def _apply(self, value: dict[str, Any], subresource: str = "") -> NodeFabric:
        return self._api.apply(NODEFABRICS, value, field_manager=FIELD_MANAGER, subresource=subresource)


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise NotWritten(str(error)) from error
