"""Waiting for conditions with a deadline; nothing in the testbed sleeps for a fixed time and hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(probe: Callable[[], T | None], what: str, seconds: float = 30.0, *, every: float = 0.05) -> T:
    """Call `probe` until it returns something true and return that.

    Raises:
        TimeoutError: `what` was not the case within `seconds`; the last value that was seen is in the message.
    """
    deadline = time.monotonic() + seconds
    while True:
        if value := probe():
            return value
        if time.monotonic() >= deadline:
            seen = "" if value is None or value is False else f"; last seen: {value!r}"
            raise TimeoutError(f"waited {seconds:g} s for {what}{seen}")
        time.sleep(every)
