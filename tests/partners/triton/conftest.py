"""Real Triton: a test of a partner, in an environment that has Triton installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.csi.rig import Rig, running_rig
from support.peers import require
from support.triton import installation as triton
from support.triton.cache import compiled

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "triton: needs Triton, which is installed once beside the other partners")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.triton)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with one kernel from Triton. It is shared: copy it."""
    with require.absences():
        triton.python()
    cache = tmp_path_factory.mktemp("filled") / "cache"
    assert not compiled(cache).hit
    return cache


@pytest.fixture
def built(filled: Path, tmp_path: Path) -> Path:
    """Return a cache at the path of its compilation, which its group files name."""
    cache = tmp_path / "build" / "cache"
    shutil.copytree(filled, cache)
    for group in cache.glob("*/__grp__*"):
        group.write_text(group.read_text().replace(str(filled), str(cache)))
    return cache


@pytest.fixture
def moved(built: Path, tmp_path: Path) -> Path:
    """Return the same cache at another path, without the original."""
    return built.rename(tmp_path / "moved")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """A node with the real gkm-csi."""
    with running_rig() as rig:
        yield rig
