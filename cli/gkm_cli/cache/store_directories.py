"""The directories of the store of `gkm exec`: this user's, and closed to others.

Entries are verified when they are fetched and not again, so a directory that another user owns, may write or could
replace is refused, as sshd refuses a file of keys (StrictModes). One rule differs: others may write in a sticky
directory above, such as /tmp, because there they can rename only what is theirs.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from gkm.hoststate import files

from gkm_cli.output import UsageError

PRIVATE, PASSAGE = 0o700, 0o711
"""A program of root may become another user: it passes the directories above its cache, and cannot list them."""
_HINT = "name your own directory with --store"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


def make(directory: Path) -> None:
    """Create a directory of this user with its missing parents.

    Raises:
        UsageError: other users could fill or replace the directory.
        OSError: the directory cannot be written, or the path is a link or no directory.
    """
    # From the top: what is made lies in a directory that was checked, and what another made meanwhile is checked too.
    for above in reversed(directory.parents):
        _make(above)
        _check_above(above)
    _make(directory)
    check_own([directory])


def check_own(directories: Iterable[Path]) -> None:
    """Check that no other user could have filled these directories.

    Raises:
        UsageError: a directory is not this user's, or others may write in it.
        OSError: a path is a link, or no directory.
    """
    for directory in directories:
        with files.closing(_opened(directory)) as descriptor:
            status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            why = f"the store {directory} belongs to user {status.st_uid}, who could change caches in it"
            raise UsageError(why, _HINT)
        if status.st_mode & _OTHERS_WRITE:
            why = f"other users may write in the store {directory}"
            raise UsageError(why, f"chmod go-w {directory}, or {_HINT}")


def limit(directories: Iterable[Path], mode: int) -> None:
    """Remove all permissions from directories that `mode` does not include.

    Raises:
        OSError: a path is a link, or no directory.
    """
    for directory in directories:
        with files.closing(_opened(directory)) as descriptor:
            before = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if before & ~mode:
                os.fchmod(descriptor, before & mode)


def _make(directory: Path) -> None:
    if not directory.exists():
        directory.mkdir(PASSAGE if os.geteuid() == _ROOT else PRIVATE, exist_ok=True)


def _check_above(directory: Path) -> None:
    status = directory.stat(follow_symlinks=False)
    if status.st_uid not in {_ROOT, os.geteuid()}:
        why = f"{directory} above the store belongs to user {status.st_uid}, who could replace the store"
        raise UsageError(why, _HINT)
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        why = f"other users may write in {directory} above the store, and could replace it"
        raise UsageError(why, f"chmod go-w {directory}, or {_HINT}")


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
