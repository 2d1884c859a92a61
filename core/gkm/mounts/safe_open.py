"""Open directories so that no link and no ".." can lead out of the root (openat2, Linux >= 5.6)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gkm.mounts import syscalls

_RESOLVE = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS


@contextmanager
def open_directory(root: Path, relative: str) -> Iterator[int]:
    """Hold an O_PATH descriptor of the directory `relative` beneath `root`, without following links.

    `root` is configuration and may be a link; `relative` is not trusted.

    Raises:
        OSError: FileNotFoundError, NotADirectoryError, ELOOP for a link, EXDEV for a path that leads out of `root`.
    """
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        directory = syscalls.openat2(top, relative, os.O_PATH | os.O_DIRECTORY, _RESOLVE)
    finally:
        os.close(top)
    try:
        yield directory
    finally:
        os.close(directory)


def proc_fd_path(descriptor: int) -> str:
    """Return a path to the file of `descriptor`, valid whatever becomes of its name."""
    return f"/proc/self/fd/{descriptor}"


def resolved_path(descriptor: int) -> str:
    """Return the resolved path of an open directory, as in mountinfo."""
    return str(Path(proc_fd_path(descriptor)).readlink())
