"""The real renderer, shared by the tests of a module: each of its children lives for many requests."""

from collections.abc import Iterator

import pytest
from gkm.templates.rendering.process import RenderingProcess


@pytest.fixture(scope="module")
def renderer() -> Iterator[RenderingProcess]:
    process = RenderingProcess()
    yield process
    process.close()
