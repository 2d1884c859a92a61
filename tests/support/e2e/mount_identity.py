"""What tells a mount from every other one, also from one that was made anew in its place.

Lines of mountinfo do not: the kernel gives a new mount the lowest id and device number that are free, which are mostly
those of the mount before.
"""

import ctypes
import os
import struct
from pathlib import Path

_AT_FDCWD = -100
_MNT_ID_UNIQUE = 0x4000
_SIZE, _MASK_AT, _MNT_ID_AT = 256, 0, 144
"""struct statx, man 2 statx."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)


def unique_id(point: Path) -> int:
    """Return the id of the mount at a path, which the kernel gives once between two boots; 0 before Linux 6.8.

    Raises:
        OSError: the path cannot be read.
    """
    found = ctypes.create_string_buffer(_SIZE)
    if _libc.statx(_AT_FDCWD, os.fsencode(point), 0, _MNT_ID_UNIQUE, found):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(point))
    (mask,) = struct.unpack_from("=I", found, _MASK_AT)
    (identity,) = struct.unpack_from("=Q", found, _MNT_ID_AT)
    return int(identity) if mask & _MNT_ID_UNIQUE else 0


def file_identity(path: Path) -> tuple[str, int, int, int]:
    """Return what differs between a file and one written in its place, whose inode number may be the same."""
    found = path.lstat()
    return str(path), found.st_ino, found.st_ctime_ns, found.st_size
