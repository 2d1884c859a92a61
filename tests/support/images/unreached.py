"""The error for an unreachable registry: one message for users, and the cause in the log only."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gkm.api.errors import GKMError, Reason


@contextmanager
def unreached(cause: str) -> Iterator[pytest.ExceptionInfo[GKMError]]:
    """Check that the block ends with the one message, and that `cause` (a pattern) matches the detail."""
    with pytest.raises(GKMError) as caught:
        yield caught
    error = caught.value
    assert error.reason is Reason.REGISTRY_UNAVAILABLE
    assert re.fullmatch(r"registry \S+ could not be reached; the log of GKM says why", str(error)), str(error)
    assert re.search(cause, error.detail), error.detail
