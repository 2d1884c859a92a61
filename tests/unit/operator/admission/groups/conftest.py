"""A cluster for reviews of group templates; one renderer for all tests of a worker."""

from collections.abc import Iterator

import pytest
from gkm.templates.rendering.process import RenderingProcess
from support.operator.group_templates import GroupTemplates, rendering


@pytest.fixture(scope="session")
def renderer() -> Iterator[RenderingProcess]:
    with rendering() as process:
        yield process


@pytest.fixture
def site(renderer: RenderingProcess) -> GroupTemplates:
    return GroupTemplates(renderer)
