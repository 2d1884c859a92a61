"""System calls that Python has no function for; each function raises OSError.

No subprocess: one in a gRPC handler can deadlock (grpc/grpc#13873), and mount(8) takes 2 ms, the call 30 us. Numbers
above 423 are the same on every architecture that GKM is built for.
"""

import ctypes
import os

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4

MS_REC = 0x4000
MS_SLAVE = 0x80000

MNT_DETACH = 0x2
UMOUNT_NOFOLLOW = 0x8

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_CLONE_NEWNS = 0x00020000
_SYS_OPEN_TREE = 428
_SYS_FSOPEN = 430
_SYS_OPENAT2 = 437
_FSOPEN_CLOEXEC = 0x1
_OPEN_TREE_CLONE = 0x1
_AT_EMPTY_PATH = 0x1000
_MAX_ATTEMPTS = 100

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Make a mount (man 2 mount).

    Raises:
        OSError: the kernel refused.
    """
    code = _libc.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, os.fsencode(options))
    _check(code, target)


def umount2(target: str, flags: int) -> None:
    """Remove a mount (man 2 umount).

    Raises:
        OSError: the kernel refused; EINVAL without a mount.
    """
    _check(_libc.umount2(os.fsencode(target), flags), target)


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open `path` relative to `directory` under the rules in `resolve` (openat2(2)); return the descriptor.

    Raises:
        OSError: ELOOP for a link, EXDEV for a path that leads out, ENOSYS on a kernel before 5.6; EAGAIN when renames
            on the machine keep interrupting the resolution of a "..", after 100 attempts as the manual recommends to
            repeat.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return _openat2(directory, path, flags, resolve)
        except BlockingIOError:
            continue
    return _openat2(directory, path, flags, resolve)


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    arguments = (ctypes.c_int(directory), ctypes.c_char_p(os.fsencode(path)), ctypes.byref(how))
    return _syscall(_SYS_OPENAT2, path, *arguments, ctypes.c_size_t(ctypes.sizeof(how)))


def enter_private_mounts() -> None:
    """Move this thread into a new mount namespace (unshare(2)), which ends with its last process.

    Mounts that others make still appear in it; those that are made in it appear nowhere else.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN.
    """
    _check(_libc.unshare(ctypes.c_int(_CLONE_NEWNS)), "/")
    mount("none", "/", "", MS_REC | MS_SLAVE, "")


def fsopen(kind: str) -> int:
    """Open a context for a new file system (fsopen(2)); it fails where the kernel lacks that kind.

    Raises:
        OSError: ENODEV for an unknown kind, EPERM without CAP_SYS_ADMIN.
    """
    return _syscall(_SYS_FSOPEN, kind, ctypes.c_char_p(os.fsencode(kind)), ctypes.c_uint(_FSOPEN_CLOEXEC))


def open_tree(directory: int) -> int:
    """Return a detached mount of `directory`, without the mounts below it (open_tree(2), Linux >= 5.2).

    The mount ends when its descriptor is closed.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
    arguments = (ctypes.c_int(directory), ctypes.c_char_p(b""), ctypes.c_uint(flags))
    return _syscall(_SYS_OPEN_TREE, f"/proc/self/fd/{directory}", *arguments)


def _syscall(number: int, path: str, *arguments: object) -> int:
    # Variadic: every argument needs its C type, since ctypes passes a Python int as a 32-bit one.
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), path)


def _check(result: int, path: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result
