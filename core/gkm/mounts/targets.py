"""The directory that a mount goes to: made, held, asked and removed without following a link.

Kubelet makes the parent and leaves the last component to the driver. Everything here is relative to a descriptor of
the parent, so nobody can exchange a part of the path between two steps.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.mounts import safe_open as beneath

_OPEN = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_MODE = 0o750


@dataclass(frozen=True, slots=True)
class MountTarget:
    """A place for a mount: a name in a directory that is held open."""

    parent: int
    name: str

    @property
    def point(self) -> str:
        """Return the resolved path, as mountinfo names it once something is mounted there."""
        return f"{beneath.resolved_path(self.parent)}/{self.name}"

    def make(self) -> bool:
        """Make the directory and return whether it was not there before.

        Raises:
            OSError: it cannot be made.
        """
        try:
            os.mkdir(self.name, _MODE, dir_fd=self.parent)
        except FileExistsError:
            return False
        return True

    @contextmanager
    def open_directory(self) -> Iterator[int]:
        """Hold an O_PATH descriptor of the directory.

        Raises:
            OSError: ENOTDIR for a link or a file (O_NOFOLLOW with O_DIRECTORY), ENOENT without it.
        """
        descriptor = os.open(self.name, _OPEN, dir_fd=self.parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def is_empty(self) -> bool:
        """Return whether nothing lies in the directory.

        Raises:
            OSError: as for `held`.
        """
        # By scandir: Path.iterdir reads all names at once, and whoever can write there decides how many there are.
        with self.open_directory() as descriptor, os.scandir(beneath.proc_fd_path(descriptor)) as entries:
            return next(entries, None) is None

    def remove(self) -> bool:
        """Remove the directory and return whether it is gone; what others put into it, or mounted on it, stays.

        Never recursive: a tree that is still mounted there would be deleted (what becomes of csi-driver-host-path's
        RemoveAll after a failed unmount).

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
    """Hold the target `path`, which must lie beneath `root`; only its parent has to exist.

    Raises:
        ValueError: `path` is not beneath `root`.
        OSError: as for `beneath.directory`, about the parent.
    """
    relative = path.parent.relative_to(root)
    with beneath.open_directory(root, str(relative)) as parent:
        yield MountTarget(parent, path.name)
