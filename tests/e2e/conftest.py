from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.cluster.installation import Installation
from support.e2e.fleet import SILENT, Fleet
from support.peers import require
from support.registry.distribution import Distribution
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign


@pytest.fixture(scope="session")
def fleet(node_cluster: Cluster, olareg: Olareg, cosign: Cosign, short_directory: Path) -> Iterator[Fleet]:
    """GKM on a real node, real registries, a real signer. Shared: use namespaces of your own."""
    keys = [cosign.public_key.read_text()]
    require.peer("distribution")
    with Distribution.start(short_directory / "private", htpasswd=True) as private:
        registries = [olareg.host, SILENT, private.host]
        with Installation.start(node_cluster, short_directory / "gkm", keys=keys, registries=registries) as gkm:
            yield Fleet(node_cluster, gkm, olareg, cosign, private)


@pytest.fixture
def namespace(fleet: Fleet) -> Iterator[str]:
    """A namespace of the test's own, emptied afterwards."""
    name = fleet.new_namespace()
    yield name
    fleet.empty(name)
