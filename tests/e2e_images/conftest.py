from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_fleet import Fleet
from e2e_images_site import Deployed
from fakes import nvml_library
from testbed import product_images, require
from testbed.cluster import Cluster
from testbed.cosign import Cosign
from testbed.deployment import PARTS, Deployment
from testbed.installation import Installation
from testbed.node_config import GATEWAY
from testbed.olareg import Olareg


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
