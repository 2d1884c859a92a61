"""The cluster that the operator's tests run against: our kinds, ServiceAccounts, roles and policies, no pods."""

from collections.abc import Iterator

import pytest
from support.cluster.cluster import Cluster
from support.operator.deployment import Shelf, deployed, shelf


@pytest.fixture(scope="session")
def gkm_cluster(cluster: Cluster) -> Cluster:
    deployed(cluster)
    return cluster


@pytest.fixture(scope="module")
def images() -> Iterator[Shelf]:
    with shelf() as filled:
        yield filled
