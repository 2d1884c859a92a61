"""The world of most tests: a pool with a template for each of five objects, and no group."""

import pytest
from support.operator.taskgroups import World


@pytest.fixture
def world() -> World:
    return World()
