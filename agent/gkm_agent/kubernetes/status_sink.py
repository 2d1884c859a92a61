"""The node objects in the Kubernetes API, written by server-side apply: only this node's objects, only GKM's fields."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from gkm.api.meta import Condition, timestamp
from gkm.api.nodes import LAST_UPDATED_ANNOTATION, NODE_LABEL, CacheNode, NodeStatus
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, Resource

from gkm_agent.interfaces.sink import NotWritten
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report.objects import (
    HOSTNAME_LABEL,
    manifest,
    node_label,
    node_object,
    with_conditions,
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
            try:
                self._remember(None, self._api.get(CLUSTERGKMCACHENODES, self._node))
            except ApiError as error:
                if not error.not_found:
                    raise
        return set(self._written)

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """See StatusSink."""
        owner = self._owner()
        if owner is None:
            raise NotWritten(f"the Node {self._node} is not known yet")
        before, now = self._written.get(scope), timestamp()
        # The conditions cover all caches, also those that the size limit drops from the object.
        status = fit_to_limit(with_conditions(status, before.conditions if before else [], now))
        plain = without_conditions(status)
        updated = before.updated if before and before.status == plain and before.updated else now
        whole = manifest(
            node_object(
                self._node,
                scope,
                status,
                updated,
                hostname=owner.metadata.labels.get(HOSTNAME_LABEL, ""),
                owner_uid=owner.metadata.uid,
            )
        )
        identity = {key: whole["metadata"][key] for key in ("name", "namespace") if key in whole["metadata"]}
        kind = {key: whole[key] for key in ("apiVersion", "kind")}
        resource = _resource(scope)
        with api_errors():
            applied = self._apply(resource, {**kind, "metadata": whole["metadata"], "spec": whole["spec"]})
            status = with_generation(status, applied.metadata.generation)
            self._apply(resource, {**kind, "metadata": identity, "status": msgspec.to_builtins(status)}, "status")
        self._written[scope] = _Written(plain, updated, status.conditions)

    def remove(self, scope: str | None) -> None:
        """See StatusSink."""
        self._written.pop(scope, None)
        with api_errors():
            try:
                self._api.delete(_resource(scope), self._node, scope)
            except ApiError as error:
                if not error.not_found:
                    raise

    def _apply(self, resource: Resource[CacheNode], value: dict[str, Any], subresource: str = "") -> CacheNode:
        return self._api.apply(resource, value, field_manager=FIELD_MANAGER, subresource=subresource)

    def _remember(self, scope: str | None, node: CacheNode) -> None:
        updated = node.metadata.annotations.get(LAST_UPDATED_ANNOTATION, "")
        self._written[scope] = _Written(without_conditions(node.status), updated, node.status.conditions)


def _resource(scope: str | None) -> Resource[Any]:
    return CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES


@contextmanager
def api_errors() -> Iterator[None]:
    """Convert an ApiError to NotWritten, with the pause that the server asked for."""
    try:
        yield
    except ApiError as error:
        raise NotWritten(str(error), error.retry_after) from error
