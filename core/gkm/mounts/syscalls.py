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
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000

MNT_DETACH = 0x2
UMOUNT_NOFOLLOW = 0x8

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_SYS_OPENAT2 = 437
_SYS_MOUNT_SETATTR = 442
_FSOPEN_CLOEXEC = 0x1
_FSMOUNT_CLOEXEC = 0x1
_FSCONFIG_CMD_CREATE = 6
_OPEN_TREE_CLONE = 0x1
_MOVE_MOUNT_EMPTY_PATHS = 0x4 | 0x40
_MOUNT_ATTR_IDMAP = 0x00100000
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_MAX_ATTEMPTS = 100

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount a file system at `target` (mount(2)).

    Raises:
        OSError: a system call failed.
    """
    code = _libc.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, os.fsencode(options))
    _check(code, target)


def umount2(target: str, flags: int) -> None:
    """Unmount the topmost mount at `target` (umount2(2)).

    Raises:
        OSError: the call failed; EINVAL if `target` is no mount.
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
    """Move this thread into a new mount namespace (unshare(2)), which exists until its last process ends.

    Mounts that others make still appear in it; those that are made in it appear nowhere else.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN.
    """
    _check(_libc.unshare(ctypes.c_int(_CLONE_NEWNS)), "/")
    mount("none", "/", "", MS_REC | MS_SLAVE, "")


def enter_user_namespace() -> None:
    """Move this process, which must have one thread, into a user namespace of its own (unshare(2)).

    Raises:
        OSError: ENOSPC where the administrator allows none (user.max_user_namespaces), EINVAL with several threads.
    """
    _check(_libc.unshare(ctypes.c_int(_CLONE_NEWUSER)), "/")


def fsopen(kind: str) -> int:
    """Open a context for a new file system (fsopen(2)); it fails where the kernel lacks that kind.

    Raises:
        OSError: ENODEV for an unknown kind, EPERM without CAP_SYS_ADMIN.
    """
    return _syscall(_SYS_FSOPEN, kind, ctypes.c_char_p(os.fsencode(kind)), ctypes.c_uint(_FSOPEN_CLOEXEC))


def fsmount(kind: str) -> int:
    """Return a detached mount of a new file system of a kind (fsmount(2)); it ends when its descriptor is closed.

    Raises:
        OSError: as for `fsopen`.
    """
    context = fsopen(kind)
    try:
        create = (ctypes.c_uint(_FSCONFIG_CMD_CREATE), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(0))
        _syscall(_SYS_FSCONFIG, kind, ctypes.c_int(context), *create)
        return _syscall(_SYS_FSMOUNT, kind, ctypes.c_int(context), ctypes.c_uint(_FSMOUNT_CLOEXEC), ctypes.c_uint(0))
    finally:
        os.close(context)


def map_ids(mount: int, user_namespace: int) -> None:
    """Map the ids of a detached mount as a user namespace does (mount_setattr(2)); both are descriptors.

    Raises:
        OSError: EINVAL for a file system whose ids this kernel cannot map, ENOSYS before Linux 5.12.
    """
    wanted = _MountAttr(set=_MOUNT_ATTR_IDMAP, user_namespace=user_namespace)
    where = (ctypes.c_int(mount), ctypes.c_char_p(b""), ctypes.c_uint(_AT_EMPTY_PATH))
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _syscall(_SYS_MOUNT_SETATTR, f"/proc/self/fd/{mount}", *where, ctypes.byref(wanted), size)


def open_tree(directory: int, *, recursive: bool = False) -> int:
    """Return a detached mount of `directory`, with the mounts below it if `recursive` (open_tree(2), Linux >= 5.2).

    The mount ends when its descriptor is closed, unless `move_mount` has attached it.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    arguments = (ctypes.c_int(directory), ctypes.c_char_p(b""), ctypes.c_uint(flags))
    return _syscall(_SYS_OPEN_TREE, f"/proc/self/fd/{directory}", *arguments)


def move_mount(tree: int, target: int) -> None:
    """Attach a detached mount, with all mounts in it, to a directory in one step (move_mount(2), Linux >= 5.2).

    Raises:
        OSError: a system call failed; nothing is mounted there.
    """
    empty = ctypes.c_char_p(b"")
    arguments = (ctypes.c_int(tree), empty, ctypes.c_int(target), empty, ctypes.c_uint(_MOVE_MOUNT_EMPTY_PATHS))
    _syscall(_SYS_MOVE_MOUNT, f"/proc/self/fd/{target}", *arguments)


def _syscall(number: int, path: str, *arguments: object) -> int:
    # Variadic: every argument needs its C type, since ctypes passes a Python int as a 32-bit one.
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), path)


def _check(result: int, path: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result
