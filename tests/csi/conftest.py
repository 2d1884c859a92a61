"""Fixtures of the driver's tests."""

from collections.abc import Iterator

import pytest
from csi_harness.rig import Rig, running_rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with running_rig() as rig:
        yield rig
