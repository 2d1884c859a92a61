from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.cluster.deployment import PARTS, Deployment
from support.cluster.installation import Installation
from support.e2e.fleet import Fleet
from support.e2e.product_images import Deployed
from support.fakes import nvml_library
from support.node.config import GATEWAY
from support.peers import require
from support.product_images import build as product_images
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign


@pytest.fixture(scope="module")
def deployed(cosign: Cosign, short_directory: Path) -> Iterator[Deployed]:
    """Our images on a real node of their own, and a registry that its pods reach."""
    require.containerd()
    require.peer("olareg")
    with require.absences():
        archives = product_images.archives()
    directory = short_directory / "i"
    with (
        Cluster.start(directory / "c", node=True) as cluster,
        Olareg.start(directory / "registry", address=GATEWAY) as olareg,
    ):
        for archive in archives.values():
            cluster.load_image(archive)
        # Nothing of it is started: it knows where things are.
        places = Installation(cluster, directory / "gkm", {})
        pods = Deployment(cluster, places.directory)
        pods.install(keys=[cosign.public_key.read_text()], registries=[olareg.host], gpus=[nvml_library.H100])
        for part in PARTS:
            pods.ready(part)
        yield Deployed(Fleet(cluster, places, olareg, cosign), pods)
