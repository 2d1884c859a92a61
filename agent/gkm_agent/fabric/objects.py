"""The objects of the API that are written about a node's fabric: names, owner, bounds. Pure."""

import base64
from typing import Any

import msgspec
from gkm.api.fabrics import NodeFabric, NodeFabricStatus
from gkm.api.meta import ObjectMeta, OwnerReference
from gkm.api.nodes import NODE_LABEL, NodeSpec
from msgspec import structs

from gkm_agent.report.objects import node_label

NAMESPACE = "gkm-system"
SURVEY_PREFIX = "gkm-ibnetdiscover-"
SURVEY_KEY = "ibnetdiscover.gz.b64"
MAX_SURVEY_BYTES = 700_000
"""Compressed: in base64 that is 0.93 MB, and a ConfigMap has at most 1 MiB (core/v1, MaxSecretSize)."""
_MAX_NAME = 253


def fabric_object(node: str, status: NodeFabricStatus, updated: str, owner_uid: str = "") -> NodeFabric:
    """Return the NodeFabric of a node; `owner_uid` is the uid of the Node that it goes with, "" without a cluster."""
    metadata = ObjectMeta(
        name=node, labels={NODE_LABEL: node_label(node)}, owner_references=_owned(node, owner_uid) if owner_uid else []
    )
    return NodeFabric(metadata, NodeSpec(node_name=node), structs.replace(status, last_updated=updated))


def manifest(fabric: NodeFabric) -> dict[str, Any]:
    """Return an object as people write it: what it is first, what it says last."""
    value: dict[str, Any] = msgspec.to_builtins(fabric)
    return {key: value[key] for key in ("apiVersion", "kind", "metadata", "spec", "status")}


def survey_name(node: str) -> str | None:
    """Return the name of the ConfigMap of a node, None where the node's name leaves no room for it."""
    name = f"{SURVEY_PREFIX}{node}"
    return name if len(name) <= _MAX_NAME else None


def survey_object(node: str, name: str, packed: bytes, owner_uid: str) -> dict[str, Any]:
    """Return the ConfigMap with what ibnetdiscover found from a node."""
    owners = [msgspec.to_builtins(owner) for owner in _owned(node, owner_uid)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {NODE_LABEL: node_label(node), "app.kubernetes.io/part-of": "gkm"},
            "ownerReferences": owners,
        },
        "data": {SURVEY_KEY: base64.b64encode(packed).decode()},
    }


def _owned(node: str, uid: str) -> list[OwnerReference]:
    return [OwnerReference(api_version="v1", kind="Node", name=node, uid=uid)]
