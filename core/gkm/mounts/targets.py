"""Create, open, check, unmount and remove the target directory of a mount without following links.

Kubelet makes the parent and leaves the last component to the driver. Every call is relative to a descriptor of the
parent, so no other process can exchange a part of the path between two steps.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate.files import closing
from gkm.mounts import safe_open, syscalls

MAX_STACKED: Final = 64
"""Limit of mounts stacked on one directory."""
_OPEN = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_MODE = 0o750


@dataclass(frozen=True, slots=True)
class MountTarget:
    """The target of a mount: a name in the open directory `parent`, a descriptor."""

    parent: int
    name: str

    @property
    def point(self) -> str:
        """Return the real path of the target, as mountinfo shows it."""
        return f"{safe_open.resolved_path(self.parent)}/{self.name}"

    def make(self) -> bool:
        """Create the target directory; return whether it was missing.

        Raises:
            OSError: it cannot be made.
        """
        try:
            os.mkdir(self.name, _MODE, dir_fd=self.parent)
        except FileExistsError:
            return False
        return True

    def open_directory(self) -> AbstractContextManager[int]:
        """Yield an O_PATH descriptor of the target directory.

        Raises:
            OSError: ENOTDIR for a link or a file (O_NOFOLLOW with O_DIRECTORY), ENOENT without the directory.
        """
        return closing(os.open(self.name, _OPEN, dir_fd=self.parent))

    def is_empty(self) -> bool:
        """Return whether the target directory is empty.

        Raises:
            OSError: as for `open_directory`.
        """
        # scandir, not Path.iterdir, which reads all names at once: another process may have added any number.
        with self.open_directory() as descriptor, os.scandir(safe_open.proc_fd_path(descriptor)) as entries:
            return next(entries, None) is None

    def unmount(self) -> int:
        """Unmount all mounts on the target directory; return their number.

        Mounts stack, so umount2 is repeated until no mount is left (EINVAL, measured; ENOENT without the directory). A
        link in the place of the directory is never followed (UMOUNT_NOFOLLOW). MNT_DETACH is used only while a process
        holds a file: the path is free at once, and the kernel ends the mount with its last user.

        Raises:
            OSError: a system call failed; EBUSY where more than `MAX_STACKED` mounts are stacked.
        """
        path = f"{safe_open.proc_fd_path(self.parent)}/{self.name}"
        for count in range(MAX_STACKED):
            if not _unmount_top(path):
                return count
        raise OSError(errno.EBUSY, f"more than {MAX_STACKED} mounts on one directory", self.name)

    def remove(self) -> bool:
        """Remove the target directory if it is empty; return whether it is gone.

        Never recursive: that would delete a tree that is still mounted there (as csi-driver-host-path's RemoveAll does
        after a failed unmount).

        Raises:
            OSError: it cannot be removed for another reason.
        """
        try:
            os.rmdir(self.name, dir_fd=self.parent)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOTDIR):
                return False
            raise
        return True


@contextmanager
def open_target(root: Path, path: Path) -> Iterator[MountTarget]:
    """Yield the mount target at `path`, which must lie below `root`; only its parent must exist.

    Raises:
        ValueError: `path` is not beneath `root`.
        OSError: as for `safe_open.open_directory`, about the parent.
    """
    relative = path.parent.relative_to(root)
    with safe_open.open_directory(root, str(relative)) as parent:
        yield MountTarget(parent, path.name)


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
