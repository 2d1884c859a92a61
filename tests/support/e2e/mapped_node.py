"""A node whose container runtime maps ids, with the real driver and a cache in its store, and nothing else of GKM."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gkm.mounts import mountinfo
from gkm.mounts.mountinfo import marked_mounts
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import Object
from support.cluster.installation import Installation
from support.csi.nodes import NodeFiles
from support.node.node import Runtime

NAMESPACE = "default"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class InstalledFiles(NodeFiles):
    """The directories of an installation."""

    kubelet_root: Path

    @property
    def kubelet(self) -> Path:
        return self.kubelet_root


@dataclass(frozen=True)
class MappedNode:
    """The cluster, the driver, and the files of its node."""

    cluster: Cluster
    files: NodeFiles

    @classmethod
    @contextmanager
    def start(cls, directory: Path) -> Iterator["MappedNode"]:
        """Start it below `directory`."""
        with Cluster.start(directory / "c", node=True, runtime=Runtime.mapping_ids()) as cluster:
            gkm = Installation(cluster, directory / "g", {})
            gkm.directory.mkdir()
            try:
                gkm.install()
                gkm.run("csi")
                yield cls(cluster, InstalledFiles(gkm.directory, cluster.kubelet_root))
            finally:
                gkm.stop()

    def ended(self, pod: Object) -> str:
        """Create a pod, wait for its end, and return what it printed."""
        self.cluster.apply(pod)
        name = pod["metadata"]["name"]
        self.cluster.until(lambda: self._status(name).get("phase") in _ENDED, f"the end of {name}", 60)
        return self.cluster.logs(name, NAMESPACE)

    def events(self, name: str) -> list[str]:
        """Return the messages of the events of a pod."""
        found = self.cluster.objects.every("events", NAMESPACE)
        return [each["message"] for each in found if each["involvedObject"]["name"] == name]

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until it is gone."""
        self.cluster.kubectl("delete", "pod", name, "-n", NAMESPACE, "--grace-period=0", "--wait=true")

    def nothing_left(self) -> bool:
        """Tell whether no volume has a record, a scratch directory or a mount."""
        layout, root = self.files.layout, str(self.files.kubelet.resolve())
        found = [*layout.volumes.iterdir(), *layout.layers.iterdir()]
        return not found and not [mount for mount in marked_mounts(mountinfo.read()) if mount.point.startswith(root)]

    def _status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.get("pod", name, NAMESPACE)["status"]
        return status


def privileged(pod: Object, **security: object) -> Object:
    """Return a pod with every capability: the runc of this node knows no seccomp, and other pods have a profile."""
    container: Mapping[str, Any] = pod["spec"]["containers"][0]
    containers = [{**container, "securityContext": {"privileged": True, **security}}]
    return pod | {"spec": pod["spec"] | {"containers": containers}}


def in_user_namespace(pod: Object, **security: object) -> Object:
    """Return a privileged pod in a user namespace: its capabilities hold there only."""
    made = privileged(pod, **security)
    return made | {"spec": made["spec"] | {"hostUsers": False}}
