"""Waiting for conditions with a deadline; nothing in the testbed sleeps for a fixed time and hopes.

A deadline only ends a wait that would never end: it is long for a machine with nothing else to do, and
GKM_TEST_TIME_SCALE makes every one longer for a slow machine. Times that the product measures do not scale.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
TIME_SCALE = "GKM_TEST_TIME_SCALE"
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
"""Seconds between two looks: what happens at once costs a millisecond, and a long wait takes no processor."""


def time_scale(environment: Mapping[str, str]) -> float:
    """Return by how much deadlines are longer.

    Raises:
        ValueError: the variable is no positive number.
    """
    word = environment.get(TIME_SCALE, "") or "1"
    try:
        scale = float(word)
    except ValueError:
        scale = 0.0
    if not 0.0 < scale < float("inf"):
        raise ValueError(f"{TIME_SCALE}={word}: must be a positive number, such as 3 for a slow machine")
    return scale


_SCALE = time_scale(os.environ)


def scaled(seconds: float) -> float:
    """Return the deadline of this machine for what takes less than `seconds` on one with nothing else to do."""
    return seconds * _SCALE


def until(probe: Callable[[], T | None], what: str, seconds: float = 30.0, *, every: float = 0.0) -> T:
    """Call `probe` until it returns something true and return that; the deadline is `scaled(seconds)`.

    It looks again after 1 ms, and doubles its pause up to 50 ms. `every` fixes the pause, for probes that disturb what
    they look at and for conditions that last shorter.

    Raises:
        TimeoutError: `what` was not the case within the deadline; the last value that was seen is in the message.
    """
    longest = scaled(seconds)
    deadline = time.monotonic() + longest
    pause = every or SHORTEST_PAUSE
    while True:
        if value := probe():
            return value
        if time.monotonic() >= deadline:
            seen = "" if value is None or value is False else f"; last seen: {value!r}"
            raise TimeoutError(f"waited {longest:g} s for {what}{seen}")
        time.sleep(pause)
        pause = every or min(2 * pause, LONGEST_PAUSE)
