"""One API for both sorts of contract tests, and the cluster that the real ones run against, with our kinds in it."""

from collections.abc import Iterator

import pytest
from gkm.kube.api import Api, ListSelector
from gkm.kube.client import connect
from support.cluster.cluster import Cluster
from support.kube.fake_api import FakeApi
from support.kube.our_kinds import THIN, install, status_writer


@pytest.fixture(scope="session")
def gkm_cluster(cluster: Cluster) -> Cluster:
    install(cluster)
    return cluster


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.apiserver)])
def api(request: pytest.FixtureRequest) -> Api:
    if request.param == "fake":
        return FakeApi()
    return connect(str(status_writer(request.getfixturevalue("gkm_cluster"))))


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).partition("[")[0]
    return name.replace("_", "-")[:50].strip("-")


@pytest.fixture
def wiped(api: Api, prefix: str) -> Iterator[str]:
    """Names of this test are its own, and gone afterwards."""
    yield prefix
    for page in api.list_pages(THIN, ListSelector(namespace="default")):
        for entry in page.entries:
            if entry.name.startswith(prefix):
                api.delete(THIN, entry.name, "default")
