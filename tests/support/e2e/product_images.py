"""What the tests and benches of our images share: a node that has them, and GKM installed by the chart on it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.cluster.cluster import Cluster
from support.cluster.deployment import Deployment
from support.cluster.installation import Installation
from support.e2e.fleet import Fleet
from support.e2e.mount_identity import file_identity, unique_id
from support.node.config import GATEWAY
from support.product_images import build
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign

PREFIX = "docker.io/library"
"""Where containerd has image names without a registry, as those of the chart's default values."""


@dataclass(frozen=True)
class Deployed:
    """GKM in pods, and what tests do with it."""

    fleet: Fleet
    pods: Deployment

    @classmethod
    @contextmanager
    def start(cls, directory: Path, cosign: Cosign) -> Iterator["Deployed"]:
        """Start a node with our images and a registry that pods reach; nothing is installed yet.

        Raises:
            Missing: this machine cannot run a node, or not build the images.
        """
        archives = build.archives()
        with (
            Cluster.start(directory / "c", node=True) as cluster,
            Olareg.start(directory / "registry", address=GATEWAY) as olareg,
        ):
            for archive in archives.values():
                cluster.load_image(archive)
            # No process of it is started: it knows where things are.
            places = Installation(cluster, directory / "gkm", {})
            yield cls(Fleet(cluster, places, olareg, cosign), Deployment(cluster, places.directory))

    def tag_images(self, prefix: str, tag: str) -> list[str]:
        """Give our images further names on the node; return these."""
        names = []
        for process in build.PROCESSES:
            names.append(f"{prefix}/gkm-{process}:{tag}")
            self.fleet.cluster.tag_image(f"{PREFIX}/gkm-{process}:{build.TAG}", names[-1])
        return names

    def mounted(self, namespace: str) -> list[str]:
        """Return a line for each volume of a namespace; of a mount that was made anew, it differs.

        It is the line of mountinfo, the mount's unique id, and the identity of the driver's record.
        """
        points = self.fleet.mounts(namespace)
        records = (self.fleet.gkm.run_directory / "volumes").glob("*/record.json")
        recorded = {json.loads(path.read_text())["targetPath"]: file_identity(path) for path in records}
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        found = [(line, line.split()[4]) for line in lines if line.split()[4] in points]
        return sorted(f"{line} {unique_id(Path(point))} {recorded.get(point)}" for line, point in found)
