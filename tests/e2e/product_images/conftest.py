from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.e2e.product_images import Deployed
from support.fakes import nvml_library
from support.peers import require
from support.product_images import build
from support.sigstore.cosign import Cosign


@contextmanager
def started(directory: Path, cosign: Cosign) -> Iterator[Deployed]:
    require.containerd()
    for command in ("olareg", "helm"):
        require.peer(command)
    with require.absences():
        build.archives()
    with Deployed.start(directory, cosign) as found:
        yield found


@pytest.fixture(scope="module")
def deployed(cosign: Cosign, short_directory: Path) -> Iterator[Deployed]:
    """GKM from our images on a real node of its own, and a registry that its pods reach."""
    with started(short_directory / "i", cosign) as found:
        keys, registries = [cosign.public_key.read_text()], [found.fleet.olareg.host]
        found.pods.install(keys=keys, registries=registries, gpus=[nvml_library.H100])
        yield found


@pytest.fixture
def bare(cosign: Cosign, short_directory: Path) -> Iterator[Deployed]:
    """A real node with our images and a GPU, and nothing of ours installed."""
    with started(short_directory / "b", cosign) as found:
        found.pods.equip([nvml_library.H100])
        yield found
