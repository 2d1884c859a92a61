"""Places on disk that a command writes to: looked at before the work, and named with need and free space when full."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gkm.api.errors import GKMError, Reason

from gkm_cli.output import UsageError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def check_new(path: Path, option: str) -> None:
    """Accept a path that does not exist yet, in a directory that can be written to.

    Raises:
        WrongUsage: something is there, or nothing can be.
    """
    if os.path.lexists(path):
        raise UsageError(f"{option} {path}: it exists already", "remove it, or name another place")
    directory = path.absolute().parent
    if not directory.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {directory}", "make it, or name another place")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: you may not write to {directory}", "name another place")


def check_free(directory: Path, need: int) -> None:
    """Accept a directory whose disk has `need` bytes free.

    Raises:
        GKMError: DISK_FULL.
    """
    if need > (free := _free(directory)):
        raise _full(directory, need, free)


@contextmanager
def filling(directory: Path, need: Callable[[], int]) -> Iterator[None]:
    """Turn what the system says of a full disk into an error with the place, the bytes needed and those that were free.

    Raises:
        GKMError: DISK_FULL.
    """
    free = _free(directory)
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _full(directory, need(), free) from error


def size_of(directory: Path) -> int:
    """Return how many bytes the files below a directory have together; what cannot be read counts as none."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 -- a cache may have 200,000 files
            except OSError:
                continue
    return total


def _free(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _full(directory: Path, need: int, free: int) -> GKMError:
    temporary = directory.is_relative_to(tempfile.gettempdir())
    elsewhere = "set TMPDIR to a directory on another disk" if temporary else "name a place on another disk"
    return GKMError(
        Reason.DISK_FULL,
        f"the disk of {directory} is full: up to {need} bytes are needed, {free} were free",
        f"free space there, or {elsewhere}",
    )
