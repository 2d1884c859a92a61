"""One control plane with controllers for the tests of this directory, which all know their own namespaces only."""

from collections.abc import Iterator

import pytest
from support.operator.domain_cluster import DomainCluster, domain_cluster
from support.peers import require


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainCluster]:
    """A cluster; its controllers run for as long as the tests."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with domain_cluster(tmp_path_factory.mktemp("domains")) as made:
        made.controllers()
        yield made
