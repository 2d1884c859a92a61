"""What is said of a registry that could not be reached: to users always the same, the cause to nobody but the log."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gkm.api.errors import GKMError, Reason


@contextmanager
def unreached(cause: str) -> Iterator[pytest.ExceptionInfo[GKMError]]:
    """See that the block ends with the one message, and with a detail that `cause` (a pattern) is found in."""
    with pytest.raises(GKMError) as caught:
        yield caught
    error = caught.value
    assert error.reason is Reason.REGISTRY_UNAVAILABLE
    assert re.fullmatch(r"registry \S+ could not be reached; the log of GKM says why", str(error)), str(error)
    assert re.search(cause, error.detail), error.detail
