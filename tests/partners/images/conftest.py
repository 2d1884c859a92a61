"""The fixtures of the tests of images against real registries."""

from collections.abc import Iterator

import pytest
from gkm.images.reference import Reference
from support.images.fixtures import built, layout
from support.images.matrix import LAYER
from support.peers import require
from support.registry.push import Target
from support.sigstore.kyverno import Kyverno
from support.sigstore.services import Sigstore
from support.sigstore.tuf_repository import tuf_repository

__all__ = ["built", "layout"]


@pytest.fixture(params=["olareg", "distribution"])
def host(request: pytest.FixtureRequest) -> str:
    """A real registry, with the referrers API or without."""
    return str(request.getfixturevalue(request.param).host)


@pytest.fixture
def ref(request: pytest.FixtureRequest, host: str) -> Reference:
    """An image of the test."""
    target = Target(host, "team/image")
    return Reference.parse(f"{target}@{target.image([(request.node.nodeid.encode(), LAYER)])}")


@pytest.fixture(scope="module")
def kyverno_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kyverno]:
    """Kyverno with a Sigstore of its own."""
    require.peer("kyverno")
    sigstore = Sigstore()
    root = sigstore.write_trusted_root(tmp_path_factory.mktemp("sigstore"))
    with tuf_repository(root.read_bytes()) as repository:
        yield Kyverno(tmp_path_factory.mktemp("kyverno"), sigstore, repository)
