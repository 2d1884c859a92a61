"""Plans of these tests end by steps, not by seconds: on a busy machine they are the same."""

from collections.abc import Iterator

import pytest
from gkm.packing import fixes, placement, plan
from gkm.packing.nodes import layout
from gkm.packing.replanning import replan


@pytest.fixture(scope="module", autouse=True)
def seconds_for_a_busy_machine() -> Iterator[None]:
    """Give each search ten minutes; a test of a deadline sets the limit that it needs."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (fixes, placement, plan, layout, replan):
            patch.setattr(module, "SECONDS", 600.0)
        yield
