from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import KEY, pushed
from support.registry.server import Registry
from support.registry.store import Repository

NAME = "vector-add"


@pytest.fixture
def registry_server() -> Iterator[Registry]:
    with Registry.start() as registry:
        yield registry


@pytest.fixture(scope="session")
def pushed_once() -> tuple[Repository, str]:
    """The repository that `gkm cache build --push` made, and the digest. Shared: copy it."""
    with Registry.start() as registry:
        digest = pushed(registry, NAME).partition("@")[2]
        return registry.store.repository(f"team/{NAME}"), digest


@pytest.fixture
def image(registry_server: Registry, pushed_once: tuple[Repository, str]) -> str:
    """The image in the registry of this test, pinned."""
    repository, digest = pushed_once
    own = registry_server.store.repository(f"team/{NAME}")
    own.blobs.update(repository.blobs)
    own.manifests.update(repository.manifests)
    own.tags.update(repository.tags)
    return f"{registry_server.host}/team/{NAME}@{digest}"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "cosign.pub"
    path.write_bytes(KEY.public_pem)
    return path
