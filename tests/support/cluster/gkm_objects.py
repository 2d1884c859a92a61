"""Objects that tests and demos give to a cluster: caches, and pods that mount them."""

from collections.abc import Mapping
from typing import Any

from support.node.container_images import BUSYBOX

MOUNT = "/cache"
Object = dict[str, Any]


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def cache(name: str, namespace: str | None, image: str) -> Object:
    """A GKMCache, or without a namespace a ClusterGKMCache."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    kind = "GKMCache" if namespace else "ClusterGKMCache"
    return {"apiVersion": "gkm.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": {"image": image}}


def pod(name: str, namespace: str, attributes: Mapping[str, str], script: str) -> Object:
    """A pod that mounts a cache at MOUNT and runs a shell script once.

    What it prints and what it complains about go into one stream: of two streams, nobody knows which line came first.
    """
    volume = {"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": dict(attributes)}}
    container = {
        "name": "app",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"exec 2>&1; {script}"],
        "env": [{"name": "TRITON_CACHE_DIR", "value": MOUNT}],
        "volumeMounts": [{"name": "kernels", "mountPath": MOUNT}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [volume],
        },
    }
