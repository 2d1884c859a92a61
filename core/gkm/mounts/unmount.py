"""Unmount all mounts that are stacked on a directory."""

import errno
from typing import Final

from gkm.mounts import syscalls
from gkm.mounts.safe_open import proc_fd_path

MAX_STACKED: Final = 64
"""GKM never stacks more mounts on one directory; the loop ends even if another program did."""


class StillMounted(Exception):
    """Mounts are left after as many unmounts as are ever needed."""


def unmount_all(parent: int, name: str) -> int:
    """Unmount all mounts of `name` in the directory `parent` (a descriptor) and return their number.

    Mounts stack, so umount2 is repeated until nothing is mounted (EINVAL, measured; ENOENT without the directory). A
    link in the place of the directory is never followed (UMOUNT_NOFOLLOW). MNT_DETACH is used only while a process
    holds a file: the path is free at once, and the kernel ends the mount with its last user.

    Raises:
        OSError: the kernel refused.
        StillMounted: more mounts were stacked than `MAX_STACKED`.
    """
    path = f"{proc_fd_path(parent)}/{name}"
    for count in range(MAX_STACKED):
        if not _unmount_top(path):
            return count
    raise StillMounted(f"more than {MAX_STACKED} mounts on one directory")


def _unmount_top(path: str) -> bool:
    try:
        syscalls.umount2(path, syscalls.UMOUNT_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        if error.errno != errno.EBUSY:
            raise
        syscalls.umount2(path, syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)
    return True
