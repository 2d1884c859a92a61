"""A mount namespace of one's own: what is mounted in it is gone with its last process, whatever happens."""

import ctypes
import os

_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | 0x40000


def enter() -> None:
    """Move this process, and what it starts from now on, into a new mount namespace that tells the old one nothing.

    Raises:
        OSError: not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
