"""What a controller last wrote into an object that it does not watch."""

from typing import Final, Generic, TypeVar

T = TypeVar("T")
REPEAT_SECONDS: Final = 60.0
"""Seconds after which unchanged content is written again: no watch shows that the object was deleted."""


class LastWrite(Generic[T]):
    """Remembers the content of the last write, and for REPEAT_SECONDS that it is current; `now` is monotonic."""

    def __init__(self) -> None:
        self.content: T | None = None
        self._repeat_at = 0.0

    def is_current(self, content: T, now: float) -> bool:
        """Return whether a write of this content would repeat the last one too soon."""
        return content == self.content and now < self._repeat_at

    def record(self, content: T, now: float) -> None:
        """Record that this content was written now."""
        self.content, self._repeat_at = content, now + REPEAT_SECONDS
