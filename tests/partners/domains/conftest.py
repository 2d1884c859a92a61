"""One cluster with NVIDIA's controller, scheduler and nodes for the tests of this directory."""

import itertools
from collections.abc import Iterator

import pytest
from support.domains.dra_cluster import DraCluster
from support.domains.nvidia import COMMAND
from support.peers import require

NODES = 6
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def dra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DraCluster]:
    """Start it; root, because the controller reads its templates below /."""
    require.root()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", COMMAND, "kwok"):
        require.peer(command)
    with require.absences(), DraCluster.start(tmp_path_factory.mktemp("dra"), NODES) as running:
        yield running


@pytest.fixture
def team(dra: DraCluster) -> Iterator[str]:
    """A namespace of the test alone."""
    with dra.namespace(f"team-{next(_NUMBERS)}") as name:
        yield name
