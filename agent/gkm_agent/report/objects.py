"""The node objects of the API from a status: names, labels, annotations, owner. Pure."""

import hashlib
from typing import Any

import msgspec
from gkm.api.meta import ObjectMeta, OwnerReference
from gkm.api.nodes import (
    CURRENT_CACHES_ANNOTATION,
    LAST_UPDATED_ANNOTATION,
    NODE_LABEL,
    CacheNode,
    ClusterGKMCacheNode,
    GKMCacheNode,
    NodeSpec,
    NodeStatus,
)

from gkm_agent.report.status import summary

HOSTNAME_LABEL = "kubernetes.io/hostname"
_MAX_LABEL = 63


def node_label(node: str) -> str:
    """Return a node's name as a label's value: beyond 63 bytes shortened, with a hash that keeps it unique."""
    if len(node) <= _MAX_LABEL:
        return node
    return f"{node[: _MAX_LABEL - 9].rstrip('-.')}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


def node_object(
    node: str, scope: str | None, status: NodeStatus, updated: str, *, hostname: str = "", owner_uid: str = ""
) -> CacheNode:
    """Return the object of one scope; `owner_uid` is the uid of the Node that it goes with, "" without a cluster."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=owner_uid)
    metadata = ObjectMeta(
        name=node,
        namespace=scope or "",
        labels={NODE_LABEL: node_label(node), HOSTNAME_LABEL: node_label(hostname or node)},
        annotations={LAST_UPDATED_ANNOTATION: updated, CURRENT_CACHES_ANNOTATION: summary(status)},
        owner_references=[owner] if owner_uid else [],
    )
    kind = ClusterGKMCacheNode if scope is None else GKMCacheNode
    return kind(metadata=metadata, spec=NodeSpec(node_name=node), status=status)


def manifest(node: CacheNode) -> dict[str, Any]:
    """Return an object as people write it: what it is first, what it says last."""
    value: dict[str, Any] = msgspec.to_builtins(node)
    return {key: value[key] for key in ("apiVersion", "kind", "metadata", "spec", "status")}
