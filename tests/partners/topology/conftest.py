"""Clusters for the tests of this directory: one with the definitions of schedulers, one with Kueue and its nodes."""

from collections.abc import Iterator

import pytest
from support.cluster.cluster import Cluster
from support.peers import require
from support.topology.definitions import install_topologies, install_volcano
from support.topology.kueue_cluster import KueueCluster

NODES = tuple(f"node-{number}" for number in range(6))
LEVELS = ("rack", "block")


@pytest.fixture(scope="session")
def schedulers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane with the definitions of Volcano, Kueue and KAI, and Volcano's admission policies in force."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with require.absences(), Cluster.start(tmp_path_factory.mktemp("schedulers")) as running:
        install_volcano(running)
        install_topologies(running)
        yield running


@pytest.fixture(scope="session")
def kueued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueCluster]:
    """Kueue, GKM, the scheduler and six nodes; root, because Kueue runs in a root directory of its own."""
    require.root()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kueue"):
        require.peer(command)
    with require.absences(), KueueCluster.start(tmp_path_factory.mktemp("kueue"), NODES, LEVELS) as running:
        yield running
