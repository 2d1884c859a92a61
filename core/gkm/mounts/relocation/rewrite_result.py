"""The result of rewriting one file that contains paths."""

import os
from dataclasses import dataclass
from typing import Final

MAX_PATH_BYTES: Final = 4095
"""PATH_MAX without its final NUL (limits.h): no longer path can be opened."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A rewritten file. If not `complete`, it names missing files, so that a lookup becomes a miss."""

    data: bytes
    complete: bool


def is_usable_path(path: str) -> bool:
    """Return whether programs in every container can open the path; an unprintable path may fail."""
    return path.isprintable() and encoded_length(path) <= MAX_PATH_BYTES


def encoded_length(path: str) -> int:
    """Return the length of a path in bytes of the file system's encoding."""
    return len(path) if path.isascii() else len(os.fsencode(path))
