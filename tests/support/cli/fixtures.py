from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import KEY, pushed
from support.registry.server import Registry


@pytest.fixture
def site() -> Iterator[Registry]:
    with Registry.start() as registry:
        yield registry


@pytest.fixture
def image(site: Registry) -> str:
    return pushed(site)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "cosign.pub"
    path.write_bytes(KEY.public_pem)
    return path
