"""Open files and directories so that no link and no ".." can lead out of the root (openat2, Linux >= 5.6)."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gkm.hoststate.files import closing
from gkm.mounts import syscalls

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS


def open_directory(root: Path, relative: str) -> AbstractContextManager[int]:
    """Yield an O_PATH descriptor of the directory `relative` below `root`; links are not followed.

    Raises:
        OSError: as for `open_beneath`; ELOOP for a link, NotADirectoryError.
    """
    return open_beneath(root, relative, os.O_PATH | os.O_DIRECTORY, syscalls.RESOLVE_NO_SYMLINKS)


@contextmanager
def open_beneath(root: Path, relative: str, flags: int, resolve: int = 0) -> Iterator[int]:
    """Yield a descriptor of `relative` below `root`; links are followed below it unless `resolve` forbids that.

    `root` is configuration and may be a link; `relative` is not trusted.

    Raises:
        OSError: FileNotFoundError; EXDEV for a path that leads out of `root`.
    """
    with closing(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        descriptor = syscalls.openat2(top, relative, flags, _BENEATH | resolve)
    with closing(descriptor):
        yield descriptor


def proc_fd_path(descriptor: int) -> str:
    """Return a path through /proc to the file of `descriptor`; it stays valid after renames."""
    return f"/proc/self/fd/{descriptor}"


def resolved_path(descriptor: int) -> str:
    """Return the real path of the open directory of a descriptor."""
    return str(Path(proc_fd_path(descriptor)).readlink())
