"""A cluster for the task groups of one module of tests, and controllers for one test."""

from collections.abc import Iterator

import pytest
from support.operator.deployment import has_lost_its_lease
from support.operator.group_cluster import GroupCluster, group_cluster
from support.peers import require


@pytest.fixture(scope="module")
def group_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupCluster]:
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with group_cluster(tmp_path_factory.mktemp("groups")) as made:
        yield made


@pytest.fixture
def place(group_control_plane: GroupCluster) -> Iterator[GroupCluster]:
    """The cluster; no controllers of a test run after it, and what it left is gone."""
    yield group_control_plane
    group_control_plane.end_processes()
    group_control_plane.clear()


@pytest.fixture
def running(place: GroupCluster) -> Iterator[None]:
    """Controllers that end in order, and never failed."""
    place.controllers()
    yield
    for process in place.processes:
        process.stop(30)
        assert process.popen.returncode == 0 or has_lost_its_lease(process), process.tail()
        text = process.log.read_text(encoding="utf-8")
        assert "watch handler failed" not in text
        assert "reconcile failed" not in text
