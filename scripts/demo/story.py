"""A demo tells a story: one line a step with the time it took, and an end that says whether all of it came true."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class StoryBroken(Exception):
    """A step did not come out as it should; the message says what was seen."""


class Story:
    """Prints the steps of a demo as they happen."""

    def __init__(self, title: str) -> None:
        self._started = time.monotonic()
        self._steps = 0
        print(f"\n{title}\n")

    def note(self, text: str) -> None:
        """Say something that is no step."""
        print(f"             {text}")

    def tell(self, text: str, step: Callable[[], T]) -> T:
        """Do a step and say so, with its time.

        Raises:
            StoryBroken: what the step raised, in one line.
        """
        self._steps += 1
        started = time.monotonic()
        sys.stdout.flush()
        value = step()
        print(f"{self._steps:>3}. {time.monotonic() - started:5.2f} s  {text}")
        if isinstance(value, str) and value:
            for line in value.splitlines():
                self.note(line)
        return value

    def end(self, text: str) -> None:
        """Say how it ended."""
        print(f"\n{text} {self._steps} steps in {time.monotonic() - self._started:.1f} s.\n")


def expect(truth: object, seen: str) -> None:
    """Break the story unless `truth`.

    Raises:
        StoryBroken: with what was seen instead.
    """
    if not truth:
        raise StoryBroken(seen)
