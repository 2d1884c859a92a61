"""Fixtures of the driver's tests."""

from collections.abc import Iterator

import pytest
from csi_harness.driver import Client, driver
from csi_harness.namespaces import private_namespace
from csi_harness.nodes import node_files
from csi_harness.rig import Rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with (
        node_files() as files,
        private_namespace() as namespace,
        driver(files, namespace) as running,
        Client(running.socket) as client,
    ):
        yield Rig(files, namespace, running, client)
