"""What a GPU node looks like in the API: its Node, its agent's pod, and its agent's report. Pure.

Sizes with what the server adds: a Node 14 KB (kubelet names up to 50 images), a pod 7 KB, a node object of 20
caches 8 KB.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from gkm.api.meta import timestamp
from gkm.api.nodes import CompatibleGPUs, GPUFabric, GPUGroup, NodeCacheStatus, NodeStatus
from gkm_agent.report.objects import manifest, node_object
from support.operator.deployment import manifests

Object = dict[str, Any]
_IMAGES = 50
_GPUS = list(range(8))
_READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": timestamp(), "lastTransitionTime": timestamp()}
_HEALTHY = ("MemoryPressure", "DiskPressure", "PIDPressure")


def node_name(number: int) -> str:
    """Return the name of a node; all are equally long, so that one is made of another by replacing it."""
    return f"gpu-{number:05}"


def pod_name(node: str) -> str:
    """Return the name of the pod of a node's agent."""
    return f"gkm-agent-{node}"


def node(name: str) -> Object:
    """Return a Node as a kubelet registers it: Ready, with the images it has."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "topology.kubernetes.io/zone": "zone-1",
        "gkm.io/gpu-flavor": "h100",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n}": "true" for n in range(20)},
    }
    fine = [
        {**_READY, "type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": "kubelet is well"}
        for kind in _HEALTHY
    ]
    ready = {**_READY, "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    amounts = {"cpu": "192", "memory": "2113456788Ki", "nvidia.com/gpu": "8", "pods": "250"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [*fine, ready],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "192.0.2.7"}],
            "images": [_image(n) for n in range(_IMAGES)],
        },
    }


def agent_pod(node: str) -> Object:
    """Return the pod of a node's agent, as deploy/base has it."""
    template = next(
        found["spec"]["template"]
        for found in manifests()
        if found["kind"] == "DaemonSet" and found["metadata"]["name"] == "gkm-agent"
    )
    spec = {key: value for key, value in template["spec"].items() if key != "runtimeClassName"}
    metadata = {**template["metadata"], "name": pod_name(node), "namespace": "gkm-system"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "nodeName": node}}


def agent_pod_status(node: str) -> Object:
    """Return the status of the agent's pod that runs and is ready."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": timestamp()} for kind in kinds]
    container = {
        "name": "agent",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "gkm-agent:test",
        "imageID": f"gkm-agent@sha256:{7:064x}",
        "containerID": f"containerd://{7:064x}",
        "state": {"running": {"startedAt": timestamp()}},
    }
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container], "podIP": "192.0.2.8"}
    return {**_identity("v1", "Pod", pod_name(node), "gkm-system"), "status": status}


def status(digests: Mapping[str, str], other: Mapping[str, NodeCacheStatus]) -> NodeStatus:
    """Return the report of an agent when all caches are Ready but those in `other`."""
    caches = {name: ready(digest) for name, digest in digests.items()} | dict(other)
    fabric = GPUFabric("8f0a2e5c-7c1a-4a52-9a77-1d1e4a5b6c7d", 3, "Completed", "Success", "healthy")
    gpus = GPUGroup(_GPUS, "NVIDIA H100 80GB HBM3", "570.124.06", "cuda", "90", 32, 81559, fabric)
    return NodeStatus(gpus=[gpus], caches=caches)


@cache
def ready(digest: str) -> NodeCacheStatus:
    """Return a cache that is Ready on all GPUs of a node, and has been since it was first asked for."""
    return NodeCacheStatus("Ready", digest, [CompatibleGPUs(_GPUS)], size_bytes=187_654_321, last_updated=timestamp())


def failed(digest: str) -> NodeCacheStatus:
    """Return a cache that failed for lack of disk space."""
    message = "the store has 1.2 GiB left of 200 GiB and the cache needs 1.4 GiB: free some, or raise store.maxBytes"
    return NodeCacheStatus("Failed", digest, reason="DiskFull", message=message, last_updated=timestamp())


def report(node: str, namespace: str, said: NodeStatus, node_uid: str) -> Object:
    """Return the node object as the agent makes it."""
    return manifest(node_object(node, namespace, said, timestamp(), owner_uid=node_uid))


def _identity(api_version: str, kind: str, name: str, namespace: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _image(number: int) -> Object:
    repository = f"images.example/team-{number % 7}/service-{number:03}"
    return {"names": [f"{repository}@sha256:{number:064x}", f"{repository}:v1.{number}.0"], "sizeBytes": 10**8 + number}
