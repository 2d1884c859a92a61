"""The API objects about a node's fabric: names, owner, bounds, and the condition Healthy of NodeFabric. Pure."""

import base64
from typing import Any

import msgspec
from gkm.api.fabrics import REGISTERING, SURVEY_KEY, SURVEY_PREFIX, NodeFabric, NodeFabricStatus
from gkm.api.installation import NAMESPACE
from gkm.api.meta import FALSE, TRUE, UNKNOWN, ObjectMeta
from gkm.api.nodes import NODE_LABEL, NodeSpec
from msgspec import structs

from gkm_agent.report.objects import node_label, owners

HEALTHY = "Healthy"
_MAX_NAME = 253


def fabric_object(node: str, status: NodeFabricStatus, updated: str, owner_uid: str = "") -> NodeFabric:
    """Return the NodeFabric of a node; `owner_uid` is the uid of the owning Node, "" without a cluster."""
    metadata = ObjectMeta(name=node, labels={NODE_LABEL: node_label(node)}, owner_references=owners(node, owner_uid))
    return NodeFabric(metadata, NodeSpec(node_name=node), structs.replace(status, last_updated=updated))


def healthy(status: NodeFabricStatus) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Healthy of a NodeFabric.

    It is Unknown for a node without a fabric, and while a GPU registers: that is no fault of a node that boots. A node
    that was never in a domain has no fabric while its GPUs are unreadable, as during an upgrade of the driver.
    """
    if status.health == "healthy":
        return TRUE, "FabricHealthy", f"the node is in the NVLink domain {status.domain}"
    if status.health == "degraded" and status.nvlink is not None and status.nvlink.state in REGISTERING:
        return UNKNOWN, "FabricRegistering", status.message
    if status.health == "degraded":
        return FALSE, "FabricDegraded", status.message
    if status.health == "unhealthy" and (status.nvlink is not None or status.domain or status.last_domain):
        return FALSE, "FabricUnhealthy", status.message
    return UNKNOWN, "NoFabric", status.message or "the GPUs of the node are attached to no NVLink fabric"


def last_domain(status: NodeFabricStatus, before: NodeFabricStatus) -> str:
    """Return the NVLink domain of a node.

    During a fault, the domain from before the fault: the node is still in the same rack.
    """
    return "" if status.domain or status.health == "none" else before.domain or before.last_domain


def survey_name(node: str) -> str | None:
    """Return the name of the ConfigMap with a node's InfiniBand survey, None if it would be too long."""
    name = f"{SURVEY_PREFIX}{node}"
    return name if len(name) <= _MAX_NAME else None


def survey_object(node: str, name: str, packed: bytes, owner_uid: str) -> dict[str, Any]:
    """Return the ConfigMap with the compressed output of ibnetdiscover on a node."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {NODE_LABEL: node_label(node), "app.kubernetes.io/part-of": "gkm"},
            "ownerReferences": msgspec.to_builtins(owners(node, owner_uid)),
        },
        "data": {SURVEY_KEY: base64.b64encode(packed).decode()},
    }
