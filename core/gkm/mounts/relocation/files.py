"""The file operations of relocation: read foreign files, and write files that every pod may read."""

import os
import stat
from pathlib import Path
from typing import Final

from gkm.hoststate.files import closing

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o444
DIRECTORY_MODE: Final = 0o755
"""Mode of directories: a pod that is not root must be able to enter."""
WRITABLE_MODE: Final = 0o777
"""Mode of directories in a private volume: a pod that is not root must be able to write."""


def make_directory(top: Path, relative: str, mode: int) -> int:
    """Create the directory `relative` below `top` with missing parents; return how many directories were created.

    Mostly only the last name is missing, so it is tried first.

    Raises:
        OSError: a disk operation failed.
    """
    parents = 0
    directory = f"{top}/{relative}" if relative else str(top)
    try:
        os.mkdir(directory)  # noqa: PTH102 -- a Path for each of thousands costs as much as the call
    except FileExistsError:
        return 0
    except FileNotFoundError:
        if not relative:
            raise
        parents = make_directory(top, os.path.dirname(relative), mode)  # noqa: PTH120 -- as above
        os.mkdir(directory)  # noqa: PTH102 -- as above
    os.chmod(directory, mode)  # noqa: PTH101 -- independent of the umask; as above
    return parents + 1


def read(directory: int, name: str, limit: int) -> bytes:
    """Return at most `limit` + 1 bytes of a file in `directory`, a descriptor.

    The content of a directory is empty: the rewritten file hides it.

    Raises:
        OSError: ELOOP for a link, or it cannot be read.
    """
    # Without file objects, which cost as much as the calls.
    with closing(os.open(name, _READ, dir_fd=directory)) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.read(descriptor, min(found.st_size, limit) + 1)


def write(path: str, data: bytes) -> None:
    """Write a new file that every user may read; `path` must not exist.

    Raises:
        OSError: the file exists already, or a disk operation failed.
    """
    with closing(os.open(path, _WRITE, _FILE_MODE)) as descriptor:
        os.fchmod(descriptor, _FILE_MODE)
        while data:
            data = data[os.write(descriptor, data) :]
