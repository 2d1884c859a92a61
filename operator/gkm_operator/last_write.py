"""What a controller last wrote into an object that it does not watch."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
REPEAT_SECONDS: Final = 60.0
"""Seconds after which unchanged content is written again: no watch shows that the object was deleted."""


class LastWrite(Generic[T]):
    """Remembers the content of the last write, and for REPEAT_SECONDS that it is current."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.content: T | None = None
        self._repeat_at = clock()

    def is_current(self, content: T) -> bool:
        """Return whether a write of this content would repeat the last one too soon."""
        return content == self.content and self._clock() < self._repeat_at

    def record(self, content: T) -> None:
        """Record that this content was written now."""
        self.content, self._repeat_at = content, self._clock() + REPEAT_SECONDS
