"""Standard streams that the caller has closed (`gkm … >&-`). It must not let a file of the program take their place.

The next file that a process opens gets the lowest free descriptor: a program that gkm starts would print into it.
"""

import errno
import os
import sys


def open_closed() -> None:
    """Open closed standard streams: input is empty, a write to output fails with EBADF, errors are lost."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if _is_closed(descriptor):
            # The lowest free descriptor is this one: the loop has filled those below.
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError as error:
        return error.errno == errno.EBADF
    return False
