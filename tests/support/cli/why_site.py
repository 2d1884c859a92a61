"""A pod and its cache on a real API server, with every link of `gkm why` intact; tests break one of them."""

import copy
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.kube import our_kinds

Json = dict[str, Any]
NAMESPACE, NODE = "ml-apps", "node-a"
DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
NOW = "2026-11-23T12:00:00Z"
VOLUME_ID = "csi-of-the-pod"
"""Stands for the id of the pod's volume, which depends on the uid of the pod."""


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def objects() -> dict[str, Json]:
    """Return a healthy pod and all on its way, by a name for each."""
    volume = {
        "name": "kernels",
        "csi": {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "llama", "mountPath": "/cache"}},
    }
    container = {
        "name": "server",
        "image": "registry.example/server:1",
        "env": [{"name": "TRITON_CACHE_DIR", "value": "/cache"}],
        "volumeMounts": [{"name": "kernels", "mountPath": "/cache"}],
    }
    running = {
        "name": "server",
        "image": "i",
        "imageID": "i",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": NOW}},
    }
    return {
        "driver": {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "csi.gkm.io"},
            "spec": {"attachRequired": False},
        },
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        "csinode": {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": NODE},
            "spec": {"drivers": [{"name": "csi.gkm.io", "nodeID": NODE, "topologyKeys": None}]},
        },
        "cache": {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": "llama", "namespace": NAMESPACE},
            "spec": {"image": "registry.example/team/caches/llama:1"},
            "status": {
                "image": "registry.example/team/caches/llama:1",
                "resolvedDigest": DIGEST,
                "runtime": "triton",
                "ready": "1/1",
                "readyNodes": 1,
                "totalNodes": 1,
                "conditions": [
                    condition("Verified", "True", "CosignSuccess"),
                    condition("Ready", "True", "AllNodesReady"),
                ],
            },
        },
        "report": {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCacheNode",
            "metadata": {"name": NODE, "namespace": NAMESPACE},
            "spec": {"nodeName": NODE},
            "status": {
                "caches": {
                    "llama": {
                        "state": "Ready",
                        "digest": DIGEST,
                        "sizeBytes": 42,
                        "compatibleGPUs": [{"ids": [0, 1]}],
                        "pods": [{"namespace": NAMESPACE, "name": "server", "volumeId": VOLUME_ID, "digest": DIGEST}],
                    }
                }
            },
        },
        "pod": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "server", "namespace": NAMESPACE},
            "spec": {"nodeName": NODE, "containers": [container], "volumes": [volume]},
            "status": {"phase": "Running", "containerStatuses": [running]},
        },
    }


def with_volume_id(made: dict[str, Json], uid: str) -> dict[str, Json]:
    """Return the objects with the id that kubelet gives the volume of the pod with this uid (makeVolumeHandle)."""
    name = hashlib.sha256(f"{uid}kernels".encode()).hexdigest()
    found: dict[str, Json] = json.loads(json.dumps(made).replace(VOLUME_ID, f"csi-{name}"))
    return found


@dataclass(frozen=True)
class WhySite:
    """The cluster."""

    cluster: Cluster

    def why(self, *arguments: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command about the pod."""
        kubeconfig = self.cluster.kubeconfig_for(user) if user else self.cluster.kubeconfig
        return gkm("why", "--kubeconfig", kubeconfig, *(arguments or ("server", "-n", NAMESPACE)))

    def steps(self, *arguments: str) -> tuple[int, list[Json]]:
        """Return the exit code and the list for programs."""
        done = self.why(*(arguments or ("server", "-n", NAMESPACE)), "-o", "json")
        assert done.stdout, done.stderr
        found: list[Json] = json.loads(done.stdout)
        return done.returncode, found

    @contextmanager
    def made(self, change: Callable[[dict[str, Json]], object] = lambda _: None) -> Iterator[None]:
        """Create the objects with a change, and delete them at the end."""
        changed = copy.deepcopy(objects())
        change(changed)
        try:
            for one in changed.values():
                self.cluster.apply([{key: value for key, value in one.items() if key != "status"}])
            pod = self.cluster.objects.get("pod", "server", NAMESPACE)
            for one in with_volume_id(changed, pod["metadata"]["uid"]).values():
                self._report(one)
            yield
        finally:
            for one in reversed(list(changed.values())):
                self.cluster.objects.delete(one)

    def _report(self, one: Json) -> None:
        if "status" in one:
            identity = {key: one["metadata"][key] for key in ("name", "namespace") if key in one["metadata"]}
            status = {
                "apiVersion": one["apiVersion"],
                "kind": one["kind"],
                "metadata": identity,
                "status": one["status"],
            }
            self.cluster.objects.apply(status, "status")


@contextmanager
def why_site(directory: Path) -> Iterator[WhySite]:
    """Start an API server with our kinds and one namespace."""
    with Cluster.start(directory) as cluster:
        our_kinds.install(cluster)
        cluster.apply([namespace(NAMESPACE)])
        cluster.until(lambda: cluster.exists("serviceaccount", "default", NAMESPACE), "the service account")
        # The controller-manager would delete pods of nodes that do not answer.
        with cluster.control_plane.stalled("kube-controller-manager"):
            yield WhySite(cluster)
