"""The sinks of an agent in a cluster: node objects, NodeFabric, labels of the Node, and the survey of the subnet.

Server-side apply writes only this node's objects, and only GKM's fields; all is written only on change. The labels use
a merge patch with GKM's keys alone, computed from the current Node, so the sink notices and repairs labels that another
client changed or removed.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import API_VERSION, Condition, ObjectMeta, timestamp
from gkm.api.nodes import LAST_UPDATED_ANNOTATION, NODE_LABEL, CacheNode, NodeStatus
from gkm.hoststate.logs import fields
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, CONFIGMAPS, GKMCACHENODES, Resource
from msgspec import structs

from gkm_agent.fabric.labels import WantedLabels, label_patch
from gkm_agent.fabric.objects import HEALTHY, fabric_object, healthy, last_domain, survey_name, survey_object
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.source import OWN_NODE, NodeView
from gkm_agent.report.objects import (
    HOSTNAME_LABEL,
    READY,
    fit_to_limit,
    manifest,
    node_label,
    node_object,
    ready,
    with_condition,
    with_generation,
    without_conditions,
)

FIELD_MANAGER = "gkm-agent"
_LOG = logging.getLogger(__name__)
NODEFABRICS: Resource[NodeFabric] = Resource(
    API_VERSION, "NodeFabric", "nodefabrics", namespaced=False, type=NodeFabric
)


class _Written(NamedTuple):
    """The status of an object without its conditions, the time of its last change, and its conditions."""

    status: NodeStatus
    updated: str
    conditions: list[Condition]


_UNREADABLE = _Written(NodeStatus(), "", [])


class KubernetesStatusSink:
    """The StatusSink of the Kubernetes API. `owner` returns the Node of this agent, which owns the objects."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._written: dict[str | None, _Written] = {}

    def scopes(self) -> set[str | None]:
        """Implement StatusSink.scopes.

        It remembers the listed objects, so that an unchanged status keeps its time. One of another version that cannot
        be read is written anew or removed.
        """
        self._written = {}
        with api_errors():
            label = ListSelector(labels=f"{NODE_LABEL}={node_label(self._node)}")
            for page in self._api.list_pages(GKMCACHENODES, label):
                for entry in page.entries:
                    if entry.name == self._node:
                        self._remember(entry.namespace, entry.value)
                self._written |= {scope: _UNREADABLE for scope, name in page.unreadable if name == self._node}
        with api_errors(missing_ok=True):
            try:
                self._remember(None, self._api.get(CLUSTERGKMCACHENODES, self._node))
            except ApiError as error:
                if not error.unreadable:
                    raise
                self._written[None] = _UNREADABLE
        return set(self._written)

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """Implement StatusSink.publish."""
        owner = known_owner(self._owner(), self._node)
        before, now = self._written.get(scope), timestamp()
        # The conditions cover all caches, also those that the size limit drops from the object.
        status = fit_to_limit(with_condition(status, READY, ready(status), before.conditions if before else [], now))
        plain = without_conditions(status)
        updated = before.updated if before and before.status == plain and before.updated else now
        hostname = owner.metadata.labels.get(HOSTNAME_LABEL, "")
        value = node_object(self._node, scope, status, updated, hostname=hostname, owner_uid=owner.metadata.uid)
        with api_errors():
            apply_with_status(self._api, _resource(scope), value)
        self._written[scope] = _Written(plain, updated, status.conditions)

    def remove(self, scope: str | None) -> None:
        """Implement StatusSink.remove."""
        self._written.pop(scope, None)
        with api_errors(missing_ok=True):
            self._api.delete(_resource(scope), self._node, scope)

    def _remember(self, scope: str | None, node: CacheNode) -> None:
        updated = node.metadata.annotations.get(LAST_UPDATED_ANNOTATION, "")
        self._written[scope] = _Written(without_conditions(node.status), updated, node.status.conditions)


def _resource(scope: str | None) -> Resource[Any]:
    return CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES


@contextmanager
def api_errors(*, missing_ok: bool = False) -> Iterator[None]:
    """Raise an ApiError as NotWritten, with what the server says; `missing_ok` ignores a 404."""
    try:
        yield
    except ApiError as error:
        if not (missing_ok and error.not_found):
            refused = not (error.unavailable or error.retry_after)
            raise NotWritten(str(error), error.retry_after, refused=refused) from error


def known_owner(node: NodeView | None, name: str) -> NodeView:
    """Return the Node object of this agent.

    Raises:
        NotWritten: the Node does not exist, or is not read yet.
    """
    if node is None:
        raise NotWritten(f"the Node {name} of this agent does not exist, or is not read yet")
    return node


class _Applied(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def apply_with_status(api: Api, resource: Resource[Any], value: CacheNode | NodeFabric) -> int:
    """Apply an object, then its status for the object's new generation; return this generation.

    Of the answers only the metadata is decoded: the first one has the earlier status, which may be of another version.
    """
    resource, whole = resource.of(_Applied), manifest(value)
    head = {key: whole[key] for key in ("apiVersion", "kind")}
    identity = {key: whole["metadata"][key] for key in ("name", "namespace") if key in whole["metadata"]}
    applied = api.apply(
        resource, {**head, "metadata": whole["metadata"], "spec": whole["spec"]}, field_manager=FIELD_MANAGER
    )
    generation: int = applied.metadata.generation
    status = msgspec.to_builtins(with_generation(value.status, generation))
    api.apply(
        resource, {**head, "metadata": identity, "status": status}, field_manager=FIELD_MANAGER, subresource="status"
    )
    return generation


class _WrittenFabric(NamedTuple):
    """The status of the object without its time, the time of its last change, and the uid of its Node ("": unknown)."""

    status: NodeFabricStatus
    updated: str
    uid: str


_NOTHING = _WrittenFabric(NodeFabricStatus(), "", "")


class KubernetesFabricSink:
    """The FabricSink of the Kubernetes API. `owner` returns the last seen Node of this agent, None if unknown."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._written: _WrittenFabric | None = None
        self._patched: tuple[str, WantedLabels] | None = None
        self._stored_survey = ""

    def publish(self, report: FabricReport) -> None:
        """Implement Sink.publish: write NodeFabric and the labels of the Node."""
        owner = known_owner(self._owner(), self._node)
        with api_errors():
            # The labels first, because schedulers act on them.
            try:
                self._label(owner, report.labels)
            except ApiError as error:
                if not error.unavailable:
                    self._publish_status(owner, report.status)
                raise
            self._publish_status(owner, report.status)

    def invalidate(self) -> None:
        """Implement Sink.invalidate."""
        self._written = self._written and self._written._replace(uid="")
        self._patched = None
        self._stored_survey = ""

    def survey(self, packed: bytes) -> None:
        """Implement FabricSink.survey."""
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
        status = structs.replace(status, last_domain=last_domain(status, before))
        current = structs.replace(status, observed_generation=before.observed_generation)
        new = with_condition(current, HEALTHY, healthy(status), before.conditions, now)
        if (before, written.uid) == (new, uid) and new.observed_generation:
            return
        updated = written.updated if written.updated and without_conditions(before) == status else now
        generation = apply_with_status(self._api, NODEFABRICS, fabric_object(self._node, new, updated, uid))
        self._written = _WrittenFabric(with_generation(new, generation), updated, uid)

    def _current(self, owner: NodeView) -> _WrittenFabric:
        """Return the content of the object from before the start, so that an unchanged status causes no write."""
        try:
            current = self._api.get(NODEFABRICS, self._node)
        except ApiError as error:
            # An object of an older schema is unreadable; the sink writes it anew.
            if error.not_found or error.unreadable:
                return _NOTHING
            raise
        owned = any(reference.uid == owner.metadata.uid for reference in current.metadata.owner_references)
        status = structs.replace(current.status, last_updated=None)
        return _WrittenFabric(status, current.status.last_updated or "", owner.metadata.uid if owned else "")
