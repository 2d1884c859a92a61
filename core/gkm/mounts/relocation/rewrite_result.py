"""What becomes of one file that names paths."""

import os
from dataclasses import dataclass
from typing import Final

MAX_PATH_BYTES: Final = 4095
"""PATH_MAX without its final NUL (limits.h): no longer path can be opened."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The file for its new place; not `complete` where it names what is not there, which can then never be hit."""

    data: bytes
    complete: bool


def is_usable_path(path: str) -> bool:
    """Tell whether every process of a container can open the path; an unprintable one may not survive its locale."""
    return path.isprintable() and len(os.fsencode(path)) <= MAX_PATH_BYTES
