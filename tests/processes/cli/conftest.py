"""The fixtures of the tests of `gkm exec`: machines of root and of another user, with an image in a registry."""

from collections.abc import Iterator

import pytest
from support.cli import execution
from support.cli.execution import PLAIN_USER, Machine
from support.cli.fixtures import image, key, pushed_once, registry_server
from support.registry.server import Registry

__all__ = ["image", "key", "pushed_once", "registry_server"]


@pytest.fixture
def root(registry_server: Registry, image: str) -> Iterator[Machine]:
    with execution.machine(registry_server, image) as made:
        yield made


@pytest.fixture
def another(registry_server: Registry, image: str) -> Iterator[Machine]:
    with execution.machine(registry_server, image, PLAIN_USER) as made:
        yield made
