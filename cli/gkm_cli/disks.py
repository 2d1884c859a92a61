"""Check destinations of files before the work, explain a full disk, and choose the directory for cached files.

An error of a full disk names the needed and the free bytes. A copy is what this program can fetch again.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import disk_space

from gkm_cli.output import UsageError


def check_new(path: Path, option: str) -> None:
    """Check that a path does not exist yet, and that its directory is writable.

    Raises:
        UsageError: the path exists, or cannot be created.
    """
    if os.path.lexists(path):
        raise UsageError(f"{option} {path}: it exists already", "remove it, or name another path")
    directory = path.absolute().parent
    if not directory.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {directory}", "create it, or name another path")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: you may not write to {directory}", "name another path")


def check_free(directory: Path, need: int) -> None:
    """Check that the disk of a directory has `need` free bytes.

    Raises:
        GKMError: DISK_FULL.
    """
    if need > (free := _free(directory)):
        raise _full(directory, need, free)


@contextmanager
def filling(directory: Path, need: Callable[[], int]) -> Iterator[None]:
    """Raise a GKMError, with the directory, the needed and the free bytes, if the block fails on a full disk.

    Raises:
        GKMError: DISK_FULL.
    """
    free = _free(directory)
    try:
        yield
    except OSError as error:
        if error.errno not in disk_space.FULL:
            raise
        raise _full(directory, need(), free) from error


def size_of(directory: Path) -> int:
    """Return the size of all files below a directory in bytes; an unreadable file adds 0."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 -- a cache may have 200,000 files
            except OSError:
                continue
    return total


def _free(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _full(directory: Path, need: int, free: int) -> GKMError:
    temporary = directory.is_relative_to(tempfile.gettempdir())
    elsewhere = "set TMPDIR to a directory on another disk" if temporary else "name a directory on another disk"
    return GKMError(
        Reason.DISK_FULL,
        f"the disk of {directory} is full: up to {need} bytes are needed, {free} were free",
        f"free space there, or {elsewhere}",
    )


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return GKM's directory below the user's cache directory; it may not exist."""
    named = environment.get("XDG_CACHE_HOME", "")
    # The specification: a relative path is invalid and ignored.
    root = Path(named) if named.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".cache"
    return root / "gkm"
