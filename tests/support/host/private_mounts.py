"""A mount namespace of one's own: what is mounted in it is gone with its last process, whatever happens.

Root only needs the mount namespace. Another user also needs a user namespace, in which this user is root; kernels and
administrators may forbid that (user.max_user_namespaces, AppArmor).
"""

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_REC_SLAVE = 0x4000 | 0x80000
"""Private would keep alive what a node on this machine has mounted: the node's unmounts must arrive here."""


def enter() -> None:
    """Move this process, and what it starts from now on, into a new mount namespace that no other process sees.

    Raises:
        OSError: the kernel does not allow it to this user.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_CLONE_NEWNS if user == 0 else _CLONE_NEWNS | _CLONE_NEWUSER))
    if user != 0:
        # A user may map a group only after it gave up setgroups(2): user_namespaces(7).
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _checked(libc.mount(None, b"/", None, _MS_REC_SLAVE, None))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
