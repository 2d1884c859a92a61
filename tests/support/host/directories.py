"""One expensive value for all tests of a directory, which ends with the last of them.

pytest knows no package without `__init__.py`: a fixture with that scope lives as long as the session.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
_OPENED = pytest.StashKey[dict[str, Any]]()


def of_directory(request: pytest.FixtureRequest, opened: Callable[[], AbstractContextManager[T]]) -> T:
    """Return what `opened` yields, for a fixture with the scope of a module; its name is the key."""
    directory = request.node.parent
    values = directory.stash.setdefault(_OPENED, {})
    if request.fixturename not in values:
        stack = ExitStack()
        directory.addfinalizer(stack.close)
        stack.callback(values.pop, request.fixturename, None)
        values[request.fixturename] = stack.enter_context(opened())
    found: T = values[request.fixturename]
    return found
