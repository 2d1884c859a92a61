"""Waiting for conditions with a deadline; nothing in the testbed sleeps for a fixed time and hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_FIRST = 0.001


def until(probe: Callable[[], T | None], what: str, seconds: float = 30.0, *, every: float = 0.05) -> T:
    """Call `probe` until it returns something true and return that: after 1 ms, then twice as late up to `every`.

    Raises:
        TimeoutError: `what` was not the case within `seconds`; the last value that was seen is in the message.
    """
    deadline = time.monotonic() + seconds
    pause = min(_FIRST, every)
    while True:
        if value := probe():
            return value
        if time.monotonic() >= deadline:
            seen = "" if value is None or value is False else f"; last seen: {value!r}"
            raise TimeoutError(f"waited {seconds:g} s for {what}{seen}")
        time.sleep(pause)
        pause = min(2 * pause, every)
