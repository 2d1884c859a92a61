"""Fixtures of the driver's tests."""

from collections.abc import Iterator

import pytest
from support.csi.desk import InMemoryNode
from support.csi.nodes import node_files
from support.csi.rig import Rig, running_rig
from support.csi.scene import Scene


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with running_rig() as rig:
        yield rig


@pytest.fixture(scope="module")
def scene(rig: Rig) -> Scene:
    return Scene(rig)


@pytest.fixture
def memory_node() -> Iterator[InMemoryNode]:
    with node_files() as files:
        yield InMemoryNode(files)
