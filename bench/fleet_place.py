"""A control plane for a fleet that exists only as objects: etcd and kube-apiserver, with GKM's kinds and rights.

No kube-controller-manager: it would consider every Node dead (no kubelet renews a lease here), evict the pods on it,
and list the fleet beside the measured processes. The API server runs with its own defaults: the writers here
are far below its 200 writes at once.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gkm.kube import client
from gkm.kube.client import HttpApi
from support.cluster.cluster import Cluster
from support.cluster.control_plane import ControlPlane, Options
from support.cluster.gkm_objects import namespace
from support.operator.deployment import Shelf, cache, deployed, manifests, shelf

NAMESPACE, SYSTEM = "fleet", "gkm-system"
CACHES = 20
CONTROLLERS = f"system:serviceaccount:{SYSTEM}:gkm-controllers"


@dataclass(frozen=True)
class FleetCluster:
    """A running control plane with caches and no nodes; `etcd` is where its storage answers."""

    cluster: Cluster
    api: HttpApi
    etcd: str
    images: Shelf
    digests: dict[str, str]
    directory: Path

    @property
    def account(self) -> Path:
        """Return a kubeconfig of the controllers, with the roles that ship."""
        return self.cluster.kubeconfig_for(CONTROLLERS)

    def pid(self, name: str) -> int:
        """Return the pid of kube-apiserver or etcd."""
        return next(process.pid for process in self.cluster.control_plane.processes if process.name == name)

    def declare(self, name: str) -> str:
        """Make a cache of a signed image of its own; return the image's digest."""
        image, digest = self.images.push(name)
        self.cluster.apply(cache(name, image, NAMESPACE))
        return digest


class Alone(ControlPlane):
    """etcd and kube-apiserver only."""

    etcd = ""

    def _start_etcd(self) -> str:
        self.etcd = super()._start_etcd()
        return self.etcd

    def _start_controller_manager(self) -> None:
        """Leave it out, see above."""


@contextmanager
def start(directory: Path) -> Iterator[FleetCluster]:
    """Start it, with a registry and CACHES caches of signed images in it."""
    with ExitStack() as stack:
        control_plane = Alone(directory / "control-plane", Options())
        stack.callback(control_plane.close)
        control_plane.start()
        cluster = Cluster(directory, control_plane)
        deployed(cluster)
        # With it, a node counts only where an agent is ready.
        cluster.apply(next(found for found in manifests() if found["kind"] == "DaemonSet" and _is_agent(found)))
        cluster.apply(namespace(NAMESPACE))
        images = stack.enter_context(shelf())
        api = client.connect(str(cluster.kubeconfig))
        place = FleetCluster(cluster, api, control_plane.etcd, images, {}, directory)
        for number in range(CACHES):
            name = f"cache-{number:02}"
            place.digests[name] = place.declare(name)
        (directory / "config.yaml").write_text(images.config(), encoding="utf-8")
        (directory / "digests.json").write_text(json.dumps(place.digests), encoding="utf-8")
        yield place


def _is_agent(found: Mapping[str, Any]) -> bool:
    return bool(found["metadata"]["name"] == "gkm-agent")
