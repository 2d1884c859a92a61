"""The result of rewriting one file that contains paths."""

import os
from dataclasses import dataclass
from typing import Final

MAX_PATH_BYTES: Final = 4095
"""PATH_MAX without its final NUL (limits.h): no longer path can be opened."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The rewritten file; not `complete` where it names a missing file, so that a lookup of it misses."""

    data: bytes
    complete: bool


def is_usable_path(path: str) -> bool:
    """Return whether every process of a container can open the path; an unprintable one may fail in its locale."""
    return path.isprintable() and encoded_length(path) <= MAX_PATH_BYTES


def encoded_length(path: str) -> int:
    """Return the bytes of a path; most of many thousands are ASCII, and need no encoding to tell."""
    return len(path) if path.isascii() else len(os.fsencode(path))
