"""Reading what strangers wrote, and writing what every pod may read: the file system's part of relocation."""

import os
import stat
from pathlib import Path
from typing import Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o444
DIRECTORY_MODE: Final = 0o755
"""A mount shows the modes of its top layer: a pod that is not root must be able to enter."""
OPEN_MODE: Final = 0o777
"""The same for a private volume: a pod that is not root must be able to write."""


def made(top: Path, relative: str, mode: int = DIRECTORY_MODE) -> Path:
    """Return the directory `relative` of the tree `top`, making what is missing on the way there.

    Raises:
        OSError: the disk refused.
    """
    directory = top / relative
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir()
        path.chmod(mode)  # whatever the umask was
    return top / relative


def read(directory: int, name: str, limit: int) -> bytes:
    """Return the content of a file in `directory`, a descriptor: a byte more than `limit` of it at most.

    A directory has none: it is hidden by the file that takes its place.

    Raises:
        OSError: ELOOP for a link, or it cannot be read.
    """
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """Write a new file that anybody may read.

    Raises:
        OSError: it is there already, or the disk refused.
    """
    descriptor = os.open(path, _WRITE, _FILE_MODE)
    try:
        os.fchmod(descriptor, _FILE_MODE)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
    finally:
        os.close(descriptor)
