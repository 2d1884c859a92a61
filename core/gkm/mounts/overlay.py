"""The kernel features that volumes need, and the two kinds of mounts: read-only, or with a private layer on top."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gkm.hoststate.files import READ_DIRECTORY, closing
from gkm.mounts import syscalls
from gkm.mounts.safe_open import open_directory, proc_fd_path

BYTES_PER_INODE: Final = 4096
"""A private layer holds one file or directory for each 4096 bytes of its limit: an inode costs kernel memory too."""
MIN_INODES: Final = 256
SELINUX_CONTEXT: Final = "system_u:object_r:container_file_t:s0"
"""The label of files that any container may read (container-selinux): without it an enforcing node denies pods every
read. Taken from its source; not tested on such a node."""
_SELINUX_ENFORCE: Final = Path("/sys/fs/selinux/enforce")
_MIN_LOWERS = 2
_OPEN_MODE = 0o777
"""The mode of the top directory of a private layer: any user of the pod must be able to write there."""
FLAGS: Final = syscalls.MS_NOSUID | syscalls.MS_NODEV


def mount_read_only(lowers: Sequence[int], target: int, name: str) -> None:
    """Mount the directories `lowers` (descriptors, the first on top) as one read-only tree on `target` (a descriptor).

    An overlay without an upper layer cannot be written to. A read-only bind mount does not suffice: a copy of it
    becomes writable by propagation and by the explicit "rw" that runc >= 1.2 applies (measured). Never noexec: Triton
    and others dlopen their cached files. Descriptors instead of paths need no quoting of ":" and "," and leave no time
    between check and use. `name` is the device in mountinfo.

    Raises:
        OSError: a system call failed; there is no mount.
    """
    if len(lowers) < _MIN_LOWERS:
        raise ValueError("an overlay without an upper layer needs two lower ones (EINVAL otherwise)")
    syscalls.mount(name, proc_fd_path(target), "overlay", FLAGS | syscalls.MS_RDONLY, _options(lowers))


def mount_private(lowers: Sequence[int], target: int, name: str, *, scratch: Path, size: int) -> None:
    """Mount `lowers` on `target` with a layer on top that holds `size` bytes at most, in memory.

    The layer is mounted on the empty directory `scratch`, and detached as soon as the overlay uses it: from then on it
    lives exactly as long as the overlay (docs/design/volumes.md). It must be mounted meanwhile: before Linux 6.15 an
    overlay accepts no detached layer (EINVAL).

    Raises:
        OSError: a system call failed; there is no mount.
    """
    inodes = max(MIN_INODES, size // BYTES_PER_INODE)
    syscalls.mount(name, str(scratch), "tmpfs", FLAGS, f"size={size},nr_inodes={inodes},mode=0700")
    try:
        with closing(os.open(scratch, READ_DIRECTORY)) as layer:
            mount_on_layer(lowers, target, name, layer, _OPEN_MODE)
    finally:
        syscalls.umount2(str(scratch), syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)


def mount_on_layer(lowers: Sequence[int], target: int, name: str, layer: int, mode: int) -> None:
    """Mount `lowers` at `target` with the empty directory `layer` as upper layer; the top directory gets `mode`.

    Raises:
        OSError: a system call failed; nothing is mounted.
    """
    os.mkdir("upper", dir_fd=layer)
    os.chmod("upper", mode, dir_fd=layer)
    os.mkdir("work", 0o700, dir_fd=layer)
    upper = f"upperdir={proc_fd_path(layer)}/upper,workdir={proc_fd_path(layer)}/work"
    syscalls.mount(name, proc_fd_path(target), "overlay", FLAGS, f"{_options(lowers)},{upper}")


def _options(lowers: Sequence[int]) -> str:
    return ",".join(("lowerdir=" + ":".join(proc_fd_path(lower) for lower in lowers), *selinux_option()))


def selinux_option() -> tuple[str, ...]:
    """Return the mount option that labels all files of a mount for SELinux; () on a node without SELinux."""
    return (f'context="{SELINUX_CONTEXT}"',) if _SELINUX_ENFORCE.exists() else ()


def missing_features() -> list[str]:
    """Return a message for each kernel feature that volumes need and this machine lacks; makes no mount."""
    return [problem for problem in (_openat2_problem(), _overlay_problem()) if problem]


def _openat2_problem() -> str:
    try:
        with open_directory(Path("/"), "."):
            return ""
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "openat2 is missing: Linux 5.6 or newer is needed"
        return f"openat2 does not work ({error.strerror}): a seccomp profile may forbid it"


def _overlay_problem() -> str:
    try:
        os.close(syscalls.fsopen("overlay"))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return "the kernel has no overlay file system: load the module 'overlay' on the node"
        if error.errno == errno.EPERM:
            return "mounting is not permitted: the container must run privileged (CAP_SYS_ADMIN)"
        return f"the overlay file system cannot be used ({error.strerror})"
    return ""
