"""Nodes and pods in the form of kubectl, with the fields that tests need."""

import json
from typing import Any

from gkm.topology.nodes import Node
from gkm.topology.pods import Pod
from msgspec import convert

Json = dict[str, Any]
READY = [{"type": "Ready", "status": "True"}]
GPU = "nvidia.com/gpu"


def node_json(name: str, labels: Json | None = None, gpus: object = "8", **spec: object) -> Json:
    """Return a Node; without `gpus` (None) it names no GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64"} | ({} if gpus is None else {GPU: gpus}), "conditions": READY},
    }


def node(name: str, labels: Json | None = None, gpus: object = "8", **spec: object) -> Node:
    return convert(node_json(name, labels, gpus, **spec), Node)


def container(gpus: object, *, restarts: str = "") -> Json:
    return {"resources": {"requests": {GPU: gpus}, "limits": {GPU: gpus}}, "restartPolicy": restarts}


def pod_json(name: str, on: str, *containers: Json, init: list[Json] | None = None, phase: str = "Running") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": on, "containers": list(containers), "initContainers": init or []},
        "status": {"phase": phase},
    }


def pod(name: str, on: str, *containers: Json, init: list[Json] | None = None, phase: str = "Running") -> Pod:
    return convert(pod_json(name, on, *containers, init=init, phase=phase), Pod)


def listed(*items: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
