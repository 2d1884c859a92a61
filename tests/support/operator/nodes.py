"""Nodes as the controllers see them: the Node, the Pod of its agent, and what that reports; as JSON and as read."""

import json
from collections.abc import Mapping
from typing import Any

from gkm.kube import decoding
from gkm.kube.api import Api
from gkm.kube.resources import Resource
from gkm.topology.nodes import Node
from gkm_operator.caches.node_reports import REPORTS, NodeObject
from gkm_operator.nodes import NODES
from gkm_operator.pods import PODS, WatchedPod
from support.operator.deployment import node as node_object

SYSTEM = "gkm-system"
_CONTAINERS = [{"name": "agent", "image": "gkm-agent:test"}]
_NOBODY = {"app.kubernetes.io/name": "nobody"}
AGENT_SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "gkm-agent", "namespace": SYSTEM},
    "spec": {
        "selector": {"matchLabels": _NOBODY},
        "template": {
            "metadata": {"labels": _NOBODY},
            "spec": {"containers": _CONTAINERS, "nodeSelector": {"no": "node"}},
        },
    },
}
"""The DaemonSet of the agents; in a real cluster it makes no Pod and takes none for its own: tests make them."""


def kube_node(name: str, ready: str = "True") -> dict[str, Any]:
    """Return a Node whose condition Ready is so; "" for one without."""
    others = [{"type": "MemoryPressure", "status": "False"}, {"type": "DiskPressure", "status": "True"}]
    conditions = [*others, *([{"type": "Ready", "status": ready}] if ready else [])]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": conditions, "images": [{"names": ["a"], "sizeBytes": 1}]},
    }


def agent_pod(node: str, ready: str = "True", *, name: str = "", **meta: str) -> dict[str, Any]:
    """Return the Pod of the agent of a node."""
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]
    labels = {"app.kubernetes.io/name": "gkm-agent"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or f"gkm-agent-{node}", "namespace": SYSTEM, "labels": labels, **meta},
        "spec": {"containers": _CONTAINERS} | ({"nodeName": node} if node else {}),
        "status": {"conditions": conditions},
    }


def a_report(name: str, caches: Mapping[str, Mapping[str, Any]], namespace: str | None = "a") -> NodeObject:
    """Return a node object as the controllers read it."""
    return decoding.single_object(REPORTS, _bytes(node_object(name, caches, namespace)))


def a_node(name: str, ready: str = "True") -> Node:
    """Return a Node as the controllers read it."""
    return decoding.single_object(NODES, _bytes(kube_node(name, ready)))


def an_agent(node: str, ready: str = "True", *, name: str = "", **meta: str) -> WatchedPod:
    """Return an agent's Pod as the controllers read it."""
    return decoding.single_object(PODS, _bytes(agent_pod(node, ready, name=name, **meta)))


def put(api: Api, resource: Resource[Any], whole: Mapping[str, Any]) -> None:
    """Make an object so, with its status."""
    api.apply(resource, {part: said for part, said in whole.items() if part != "status"}, field_manager="test")
    if "status" in whole:
        api.apply(resource, whole, field_manager="test", subresource="status")


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
