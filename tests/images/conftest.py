from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate.layout import Layout
from gkm.images.build import BuiltImage, build_triton
from images_archives import mcv_image
from images_site import Site, filled
from testbed.registry import Registry as RealRegistry

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def built() -> BuiltImage:
    return build_triton(DATA / "triton-cache", "vector-add")


@pytest.fixture(scope="session")
def mcv() -> BuiltImage:
    return mcv_image()


@pytest.fixture
def site(built: BuiltImage) -> Iterator[Site]:
    with RealRegistry.start() as real:
        yield filled(real, built)


@pytest.fixture
def site_without_referrers(built: BuiltImage) -> Iterator[Site]:
    with RealRegistry.start(referrers=False) as real:
        yield filled(real, built)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "state", tmp_path / "run")
    layout.make()
    return layout
