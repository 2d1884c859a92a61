"""Real torch: a test of a partner, in an environment that has torch installed."""

import shutil
from pathlib import Path

import pytest
from support.peers import require
from support.torch import installation as torch
from support.torch.cache import MISS, compiled, counted

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torch: needs torch, which is installed once beside the other partners")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.torch)
            item.add_marker(pytest.mark.heavy)
            # The first test may fetch torch, and compiles the model.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with one model, at the path of its compilation. It is shared: copy it."""
    with require.absences():
        torch.python()
    require.command("g++", "g++")
    directory = tmp_path_factory.mktemp("filled")
    assert counted(compiled(directory / "cache", "--save", directory / "model.artifacts")) == MISS
    return directory / "cache"


@pytest.fixture
def moved(filled: Path, tmp_path: Path) -> Path:
    """Return a copy of the cache at another path."""
    return shutil.copytree(filled, tmp_path / "moved")
