"""The cluster that the operator's tests run against: our kinds, ServiceAccounts, roles and policies, no pods."""

from collections.abc import Iterator

import pytest
from support.cluster.cluster import Cluster
from support.operator.deployment import Shelf, deployed, shelf
from support.operator.kserve import inference_service_kind


@pytest.fixture(scope="session")
def gkm_cluster(cluster: Cluster) -> Cluster:
    deployed(cluster)
    return cluster


@pytest.fixture(scope="session")
def kserve(gkm_cluster: Cluster) -> None:
    """The API server knows KServe's kind; KServe itself does not run."""
    gkm_cluster.apply(inference_service_kind())
    gkm_cluster.until_kinds_established()


@pytest.fixture(scope="module")
def images() -> Iterator[Shelf]:
    with shelf() as filled:
        yield filled
