"""The node objects in the Kubernetes API, written by server-side apply: only this node's objects, only GKM's fields."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from gkm.api.fabrics import NodeFabric
from gkm.api.meta import Condition, timestamp
from gkm.api.nodes import LAST_UPDATED_ANNOTATION, NODE_LABEL, CacheNode, NodeStatus
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, Resource

from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report.objects import (
    HOSTNAME_LABEL,
    READY,
    manifest,
    node_label,
    node_object,
    ready,
    with_condition,
    with_generation,
    without_conditions,
)
from gkm_agent.report.size_limit import fit_to_limit

FIELD_MANAGER = "gkm-agent"


class _Written(NamedTuple):
    """The status of an object without its conditions, the time of its last change, and its conditions."""

    status: NodeStatus
    updated: str
    conditions: list[Condition]


class KubernetesStatusSink:
    """The StatusSink of the Kubernetes API. `owner` returns the Node of this agent, which owns the objects."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._written: dict[str | None, _Written] = {}

    def scopes(self) -> set[str | None]:
        """See StatusSink; remember the current objects, so that an unchanged status has an unchanged time."""
        self._written = {}
        with api_errors():
            label = ListSelector(labels=f"{NODE_LABEL}={node_label(self._node)}")
            for page in self._api.list_pages(GKMCACHENODES, label):
                for entry in page.entries:
                    if entry.name == self._node:
                        self._remember(entry.namespace, entry.value)
        with api_errors(missing_ok=True):
            self._remember(None, self._api.get(CLUSTERGKMCACHENODES, self._node))
        return set(self._written)

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """See StatusSink."""
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
        """See StatusSink."""
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
    """Convert an ApiError to NotWritten, with the pause that the server requires; with `missing_ok`, pass a 404."""
    try:
        yield
    except ApiError as error:
        if not (missing_ok and error.not_found):
            raise NotWritten(str(error), error.retry_after) from error


def known_owner(node: NodeView | None, name: str) -> NodeView:
    """Return the Node of this agent.

    Raises:
        NotWritten: it is not known yet.
    """
    if node is None:
        raise NotWritten(f"the Node {name} is not known yet")
    return node


def apply_with_status(api: Api, resource: Resource[Any], value: CacheNode | NodeFabric) -> int:
    """Write an object, then its status about the new generation of the object; return this generation."""
    whole = manifest(value)
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
