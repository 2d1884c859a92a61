"""A volume of a pod in a user namespace: a tmpfs with the overlay inside, and a link to each name at its top.

The container runtime maps the ids of the top mount only. Linux maps those of a tmpfs, and of no overlay
(docs/decisions/0043-user-namespaces.md).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from resource import getpagesize
from typing import Final

from gkm.hoststate.files import READ_DIRECTORY, closing
from gkm.mounts import overlay, syscalls
from gkm.mounts.safe_open import proc_fd_path

CONTENT: Final = ".gkm"
"""The directory in the tmpfs on which the overlay is mounted."""
OUTSIDE_ID: Final = 0xFFFFFFFE
"""The owner id of files that no pod may change: an id that no user namespace maps."""
MAX_NAMES: Final = 20_000
"""Limit of names at the top of a cache; each needs a link, and an inode of kernel memory in each volume."""
_INLINE_BYTES: Final = 127
"""The kernel stores a longer link in a page (mm/shmem.c, SHORT_SYMLINK_LEN)."""
_ALL_NAMES: Final = 2
"""The lowest layers: the entry, and the empty directory below it."""
_OWN_INODES: Final = 2
"""The top and CONTENT."""
_CLOSED, _OPEN = f"mode=0555,uid={OUTSIDE_ID},gid={OUTSIDE_ID}", "mode=0777"
"""The top, read-only and private: an inode of OUTSIDE_ID can be written by no user of the pod, whatever its mode."""
_CONTENT_MODE: Final = 0o755
"""The mode of the top of a private overlay: a new name belongs beside the links, where the pod sees it."""


class Unlinkable(Exception):
    """The names at the top of a cache cannot be replaced by links; the message has the cause."""


@dataclass(frozen=True, slots=True)
class MountedView:
    """A mounted volume, by descriptors: `top` of its mount, `content` of the overlay inside, None in the plain form.

    The pod wrote in both, and is not trusted. Mounts that it made inside are not seen.
    """

    top: int
    content: int | None = None

    def is_own(self, name: str) -> bool:
        """Return whether a name at the top is the overlay's directory, made by GKM and not by the pod."""
        return self.content is not None and name == CONTENT

    def holder(self, name: str) -> int:
        """Return a descriptor of the directory with the file that the pod sees as `name` at the top."""
        if self.content is not None:
            with suppress(OSError):
                if os.readlink(name, dir_fd=self.top) == _link(name):
                    return self.content
        return self.top


def mount(lowers: Sequence[int], target: int, name: str, *, scratch: Path, size: int | None) -> None:
    """Mount `lowers` (descriptors, the topmost first) at `target` as a tmpfs with links, in one step.

    It is read-only, or with `size` a private layer that holds as many bytes, in memory. It is built on the empty
    directory `scratch`, which has no mount afterwards.

    Raises:
        Unlinkable: the cache has too many names at its top, or CONTENT.
        OSError: a system call failed; `target` has no new mount.
    """
    names = _top_names(lowers)
    syscalls.mount(name, str(scratch), "tmpfs", overlay.FLAGS, _options(names, size))
    try:
        # Else the end of this mount would also be that of the overlay in its copy, by propagation.
        syscalls.mount("none", str(scratch), "", syscalls.MS_PRIVATE, "")
        with closing(os.open(scratch, READ_DIRECTORY)) as top:
            _fill(top, lowers, names, f"{name}/{CONTENT}", private=size is not None)
            with closing(syscalls.open_tree(top, recursive=True)) as tree:
                syscalls.move_mount(tree, target)
    finally:
        syscalls.umount2(str(scratch), syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)


@contextmanager
def view(target: int) -> Iterator[MountedView]:
    """Yield descriptors of a link farm mounted at `target`.

    Raises:
        OSError: `target` has no link farm.
    """
    with (
        closing(syscalls.open_tree(target)) as top,
        closing(os.open(CONTENT, os.O_PATH | READ_DIRECTORY, dir_fd=target)) as point,
        closing(syscalls.open_tree(point)) as content,
    ):
        yield MountedView(top, content)


def _fill(top: int, lowers: Sequence[int], names: Sequence[str], name: str, *, private: bool) -> None:
    os.mkdir(CONTENT, 0o700, dir_fd=top)
    os.chown(CONTENT, OUTSIDE_ID, OUTSIDE_ID, dir_fd=top)
    with closing(os.open(CONTENT, READ_DIRECTORY, dir_fd=top)) as covered:
        if private:
            overlay.mount_on_layer(lowers, covered, name, covered, _CONTENT_MODE)
        else:
            overlay.mount_read_only(lowers, covered, name)
    for each in names:
        os.symlink(_link(each), each, dir_fd=top)


def _top_names(lowers: Sequence[int]) -> Sequence[str]:
    # A relocated tree above them has no name at its top that the entry lacks.
    names: set[str] = set()
    for lower in lowers[-_ALL_NAMES:]:
        with os.scandir(proc_fd_path(lower)) as entries:  # an image decides their number
            names.update(entry.name for entry in islice(entries, MAX_NAMES + 1))
    if CONTENT in names:
        raise Unlinkable(f"the cache has the name {CONTENT} at its top, where the mount of its content is")
    if len(names) > MAX_NAMES:
        raise Unlinkable(f"the cache has more names at its top than the {MAX_NAMES} that a user namespace allows")
    return list(names)


def _options(names: Sequence[str], size: int | None) -> str:
    """Return the options of the tmpfs: links take nothing of `size`, and what needs no page has one (0 is no limit)."""
    inline = _INLINE_BYTES - len(_link(""))
    pages = sum(len(name if name.isascii() else os.fsencode(name)) > inline for name in names)
    size_bytes = (getpagesize() if size is None else size) + pages * getpagesize()
    inodes = max(overlay.MIN_INODES, (size or 0) // overlay.BYTES_PER_INODE) + len(names) + _OWN_INODES
    top = _CLOSED if size is None else _OPEN
    return ",".join((f"size={size_bytes},nr_inodes={inodes},{top}", *overlay.selinux_option()))


def _link(name: str) -> str:
    return f"{CONTENT}/{name}"
