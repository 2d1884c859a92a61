"""One control plane with controllers for the tests of this directory, which all know their own namespaces only."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.host.directories import of_directory
from support.operator.domain_cluster import DomainCluster, domain_cluster
from support.peers import require


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DomainCluster:
    """A cluster; its controllers run for as long as the tests."""

    @contextmanager
    def opened() -> Iterator[DomainCluster]:
        for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
            require.peer(command)
        with domain_cluster(tmp_path_factory.mktemp("domains")) as made:
            made.controllers()
            yield made

    return of_directory(request, opened)
