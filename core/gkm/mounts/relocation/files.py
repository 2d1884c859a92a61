"""The file operations of relocation: read foreign files, and write files that every pod may read."""

import os
import stat
from pathlib import Path
from typing import Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o444
DIRECTORY_MODE: Final = 0o755
"""A mount shows the modes of its top layer: a pod that is not root must be able to enter."""
WRITABLE_MODE: Final = 0o777
"""The same for a private volume: a pod that is not root must be able to write."""


def make_directory(top: Path, relative: str, mode: int) -> str:
    """Return the directory `relative` of the tree `top`, making it and its missing parents.

    Mostly only the last name is missing, so it is tried first.

    Raises:
        OSError: the disk refused.
    """
    directory = f"{top}/{relative}" if relative else str(top)
    try:
        os.mkdir(directory)  # noqa: PTH102 -- a Path for each of thousands costs as much as the call
    except FileExistsError:
        return directory
    except FileNotFoundError:
        if not relative:
            raise
        make_directory(top, os.path.dirname(relative), mode)  # noqa: PTH120 -- as above
        os.mkdir(directory)  # noqa: PTH102 -- as above
    os.chmod(directory, mode)  # noqa: PTH101 -- independent of the umask; as above
    return directory


def read(directory: int, name: str, limit: int) -> bytes:
    """Return the content of a file in `directory`, a descriptor: at most `limit` bytes and one more.

    The content of a directory is empty: the rewritten file hides it.

    Raises:
        OSError: ELOOP for a link, or it cannot be read.
    """
    descriptor = os.open(name, _READ, dir_fd=directory)
    # os.fdopen refuses a directory and leaves its descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1)


def write(path: str, data: bytes) -> None:
    """Write a new file that every user may read.

    Raises:
        OSError: it exists already, or the disk refused.
    """
    with os.fdopen(os.open(path, _WRITE, _FILE_MODE), "wb") as file:
        os.fchmod(file.fileno(), _FILE_MODE)
        file.write(data)
