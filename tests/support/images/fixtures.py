from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate.layout import Layout
from gkm.images.local_image import LocalImage
from support.images.archives import cache_image, mcv_image
from support.images.cache_registry import Site, filled
from support.registry.server import Registry as RealRegistry


@pytest.fixture(scope="session")
def built() -> LocalImage:
    return cache_image()


@pytest.fixture(scope="session")
def mcv() -> LocalImage:
    return mcv_image()


@pytest.fixture
def site(built: LocalImage) -> Iterator[Site]:
    with RealRegistry.start() as real:
        yield filled(real, built)


@pytest.fixture
def site_without_referrers(built: LocalImage) -> Iterator[Site]:
    with RealRegistry.start(referrers=False) as real:
        yield filled(real, built)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "state", tmp_path / "run")
    layout.make_directories()
    return layout
