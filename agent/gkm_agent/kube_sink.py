"""Node objects in the Kubernetes API, by server-side apply: only our own node's, only the fields that are ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gkm.api.meta import timestamp
from gkm.api.nodes import LAST_UPDATED_ANNOTATION, NODE_LABEL, CacheNode, NodeStatus
from gkm.kube.api import Api, Selector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, Resource

from gkm_agent.kube_source import NodeView
from gkm_agent.node_objects import HOSTNAME_LABEL, manifest, node_label, node_object
from gkm_agent.sink import NotWritten
from gkm_agent.status_size import fitted

FIELD_MANAGER = "gkm-agent"


class KubeSink:
    """The StatusSink of the Kubernetes API. `owner` returns our Node, whose garbage the objects become."""

    def __init__(self, api: Api, node: str, owner: Callable[[], NodeView | None]) -> None:
        self._api = api
        self._node = node
        self._owner = owner
        self._said: dict[str | None, tuple[NodeStatus, str]] = {}

    def scopes(self) -> set[str | None]:
        """See StatusSink; what the objects say now is remembered, so that saying it again changes nothing."""
        self._said = {}
        with _written():
            label = Selector(labels=f"{NODE_LABEL}={node_label(self._node)}")
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
        status = fitted(status)
        said, moment = self._said.get(scope, (None, ""))
        moment = moment if said == status and moment else timestamp()
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
            self._apply(resource, {**kind, "metadata": whole["metadata"], "spec": whole["spec"]})
            self._apply(resource, {**kind, "metadata": identity, "status": whole["status"]}, "status")
        self._said[scope] = (status, moment)

    def remove(self, scope: str | None) -> None:
        """See StatusSink."""
        self._said.pop(scope, None)
        with _written():
            try:
                self._api.delete(_resource(scope), self._node, scope)
            except ApiError as error:
                if not error.not_found:
                    raise

    def _apply(self, resource: Resource[Any], value: dict[str, Any], subresource: str = "") -> None:
        self._api.apply(resource, value, field_manager=FIELD_MANAGER, subresource=subresource)

    def _remember(self, scope: str | None, node: CacheNode) -> None:
        self._said[scope] = (node.status, node.metadata.annotations.get(LAST_UPDATED_ANNOTATION, ""))


def _resource(scope: str | None) -> Resource[Any]:
    return CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise NotWritten(str(error)) from error
