"""The cluster that contract tests run against, with our kinds in it."""

import pytest
from kube.our_kinds import install
from testbed.cluster import Cluster


@pytest.fixture(scope="session")
def gkm_cluster(cluster: Cluster) -> Cluster:
    install(cluster)
    return cluster
