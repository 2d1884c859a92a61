"""Node objects in the Kubernetes API, by server-side apply: only our own node's, only the fields that are ours."""

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
from gkm_agent.node_conditions import observed, with_conditions, without_conditions
from gkm_agent.report.objects import HOSTNAME_LABEL, manifest, node_label, node_object
from gkm_agent.report.size_limit import fit_to_limit

FIELD_MANAGER = "gkm-agent"


class _Said(NamedTuple):
    """What an object says, since when, and its conditions; the status is without them."""

    status: NodeStatus
    moment: str
    conditions: list[Condition]


class KubernetesStatusSink:
    """The StatusSink of the Kubernetes API. `owner` returns our Node, whose garbage the objects become."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._said: dict[str | None, _Said] = {}

    def scopes(self) -> set[str | None]:
        """See StatusSink; what the objects say now is remembered, so that saying it again changes nothing."""
        self._said = {}
        with _written():
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
        return set(self._said)

    def publish(self, scope: str | None, status: NodeStatus) -> None:
        """See StatusSink."""
        owner = self._owner()
        if owner is None:
            raise NotWritten(f"the Node {self._node} is not known yet")
        said, now = self._said.get(scope), timestamp()
        # The conditions are of all caches, also of those that are left out of an object that would be too large.
        status = fit_to_limit(with_conditions(status, said.conditions if said else [], now))
        plain = without_conditions(status)
        moment = said.moment if said and said.status == plain and said.moment else now
        whole = manifest(
            node_object(
                self._node,
                scope,
                status,
                moment,
                hostname=owner.metadata.labels.get(HOSTNAME_LABEL, ""),
                owner_uid=owner.metadata.uid,
            )
        )
        identity = {key: whole["metadata"][key] for key in ("name", "namespace") if key in whole["metadata"]}
        kind = {key: whole[key] for key in ("apiVersion", "kind")}
        resource = _resource(scope)
        with _written():
            there = self._apply(resource, {**kind, "metadata": whole["metadata"], "spec": whole["spec"]})
            status = observed(status, there.metadata.generation)
            self._apply(resource, {**kind, "metadata": identity, "status": msgspec.to_builtins(status)}, "status")
        self._said[scope] = _Said(plain, moment, status.conditions)

    def remove(self, scope: str | None) -> None:
        """See StatusSink."""
        self._said.pop(scope, None)
        with _written():
            try:
                self._api.delete(_resource(scope), self._node, scope)
            except ApiError as error:
                if not error.not_found:
                    raise

    def _apply(self, resource: Resource[CacheNode], value: dict[str, Any], subresource: str = "") -> CacheNode:
        return self._api.apply(resource, value, field_manager=FIELD_MANAGER, subresource=subresource)

    def _remember(self, scope: str | None, node: CacheNode) -> None:
        moment = node.metadata.annotations.get(LAST_UPDATED_ANNOTATION, "")
        self._said[scope] = _Said(without_conditions(node.status), moment, node.status.conditions)


def _resource(scope: str | None) -> Resource[Any]:
    return CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise NotWritten(str(error)) from error
