"""Taking mounts away until none is left."""

import errno
from typing import Final

from gkm.mounts import syscalls
from gkm.mounts.safe_open import proc_fd_path

MAX_STACKED: Final = 64
"""More mounts than this are never stacked on one directory by us; whoever did it, we do not loop for ever."""


class StillMounted(Exception):
    """Mounts are left although as many were taken away as are ever expected."""


def unmount_all(parent: int, name: str) -> int:
    """Unmount whatever is mounted on `name` in the directory `parent` (a descriptor) and return how many mounts went.

    Mounts stack, so umount2 is repeated until it says that nothing is there (EINVAL, measured; ENOENT without the
    directory). A link in the place of the directory is never followed (UMOUNT_NOFOLLOW). MNT_DETACH only where a
    process still holds a file: it leaves at once, and the kernel ends the mount with the last user.

    Raises:
        OSError: the kernel refused.
        StillMounted: more was stacked than `MAX_STACKED`.
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
