"""Remove directory trees of any size in little memory: each name is removed as it is read.

shutil.rmtree and os.walk read all names of a directory before they use the first: 200,000 of them took 100 MiB.
"""

import errno
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from gkm.hoststate.files import READ_DIRECTORY, closing

_OPEN_MODE = 0o755
_MAX_OPEN_LEVELS = 64
"""Each level holds two descriptors while it is emptied. Deeper directories are moved to the top and removed there."""
_THREADS = 4
_MAX_PASSES = 16
"""A file system may skip names while others are removed (POSIX.1-2017, readdir); one pass is enough on common ones."""


def remove(path: Path) -> None:
    """Remove a directory tree, sealed or not, or a file in its place; idempotent. No link is followed.

    Raises:
        OSError: a part of it cannot be removed.
    """
    try:
        top = os.open(path, READ_DIRECTORY)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        path.unlink(missing_ok=True)
        return
    with closing(top):
        for _ in range(_MAX_PASSES):
            with suppress(FileNotFoundError):  # another thread removed it
                _empty(top, top, 0)
            if _remove_if_empty(path):
                return
    raise OSError(errno.ENOTEMPTY, "another process adds files during the removal", str(path))


def remove_side_by_side(path: Path) -> None:
    """Remove a tree as `remove` does, by several threads: each removes what the others have left.

    On a disk with discards, an unlink waits for its discard after the name is gone. So the threads wait side by side.

    Raises:
        OSError: a part of it cannot be removed.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="remove") as pool:
        for removal in [pool.submit(remove, path) for _ in range(_THREADS)]:
            removal.result()


def _empty(descriptor: int, top: int, level: int) -> None:
    os.fchmod(descriptor, _OPEN_MODE)
    with os.scandir(descriptor) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    _remove_directory(entry.name, descriptor, top, level + 1)
                else:
                    os.unlink(entry.name, dir_fd=descriptor)


def _remove_directory(name: str, parent: int, top: int, level: int) -> None:
    with closing(os.open(name, READ_DIRECTORY, dir_fd=parent)) as descriptor:
        if level > _MAX_OPEN_LEVELS:
            os.fchmod(descriptor, _OPEN_MODE)  # otherwise only root may move it
            os.rename(name, f".deep-{secrets.token_hex(8)}", src_dir_fd=parent, dst_dir_fd=top)
            return
        _empty(descriptor, top, level)
    _remove_if_empty(name, parent)  # if it is not empty, the next pass continues


def _remove_if_empty(path: Path | str, parent: int | None = None) -> bool:
    """Remove a directory; return False if it is not empty."""
    try:
        os.rmdir(path, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
