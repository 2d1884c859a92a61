"""A mount that is read-only for everybody, also for those who remount it."""

from collections.abc import Sequence

from gkm.mounts import syscalls
from gkm.mounts.beneath import path_of

_MIN_LOWERS = 2
_FLAGS = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV


def mount_read_only(lowers: Sequence[int], target: int, name: str) -> None:
    """Mount the directories `lowers` (descriptors, the first on top) as one read-only tree on `target` (a descriptor).

    An overlay without an upper layer has nowhere to write to. A bind mount that is remounted read-only does not do: a
    copy of it turns writable by propagation and by the explicit "rw" that runc >= 1.2 applies (measured). Never noexec:
    Triton and others dlopen what they cache. Descriptors instead of paths need no quoting of ":" and "," and leave
    nothing between check and use. `name` stands as the device in mountinfo.

    Raises:
        OSError: the kernel refused; nothing is mounted.
    """
    if len(lowers) < _MIN_LOWERS:
        raise ValueError("an overlay without an upper layer needs two lower ones (EINVAL otherwise)")
    options = "lowerdir=" + ":".join(path_of(lower) for lower in lowers)
    syscalls.mount(name, path_of(target), "overlay", _FLAGS, options)
