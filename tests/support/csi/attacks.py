"""What root of a pod in a user namespace tries with its volume: each attack has the error that stops it, and why.

Run as a program in the pod: `attacks.py VOLUME` prints the outcome of each attack as JSON. It needs the standard
library only. CONTENT is what the volume must hold.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

READ_ONLY, PRIVATE = "read-only", "private"
DONE = "done"
"""The call succeeds: it changes the pod's own layer, or its own mounts."""
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MNT_DETACH = 0x1, 0x20, 0x1000, 0x2000, 0x2
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_AT_FDCWD, _AT_EMPTY_PATH, _RENAME_EXCHANGE = -100, 0x1000, 2
_FS_IOC_SETFLAGS, _FICLONE = 0x40086602, 0x40049409
_CAPABILITY = bytes.fromhex("0100000202000000000000000000000000000000")
_ACL = bytes.fromhex("02000000" + "01000700ffffffff" + "04000700ffffffff" + "20000700ffffffff")
_WHITEOUT, _NULL = os.makedev(0, 0), os.makedev(1, 3)

CONTENT = {
    "index": "names",
    **{f"key/{name}.bin": "kernel" for name in ("kernel", "spare", "other", "third")},
    **{f"{key}/kernel.bin": "kernel" for key in ("spare", "first", "replaced")},
}
"""A cache that the attacks find: text by path. An attack that may succeed has a file or a key to itself."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def called(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mounted(source: Path | str, target: Path, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags))
    called(libc.mount(*words, options.encode() or None))


def unmounted(target: Path, flags: int = 0) -> None:
    called(libc.umount2(os.fsencode(target), flags))


def numbered(number: int, *arguments: object) -> int:
    return called(libc.syscall(ctypes.c_long(number), *arguments))


@dataclass(frozen=True)
class Volume:
    """The volume as the pod sees it."""

    top: Path

    @property
    def content(self) -> Path:
        return self.top / ".gkm"

    @property
    def link(self) -> Path:
        return self.top / "key"

    @property
    def sealed(self) -> Path:
        return self.link / "kernel.bin"


@dataclass(frozen=True)
class Attack:
    """A call, and its outcome in each form: the name of an error, or DONE."""

    why: str
    run: Callable[[Volume], object]
    read_only: str
    private: str

    def expected(self, form: str) -> str:
        return self.read_only if form == READ_ONLY else self.private


def opened(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    os.close(descriptor)
    return descriptor


def with_sealed(act: Callable[[int], object]) -> Callable[[Volume], object]:
    """Act on a descriptor of the sealed file that is open for reading."""

    def run(volume: Volume) -> None:
        descriptor = os.open(volume.sealed, os.O_RDONLY)
        try:
            act(descriptor)
        finally:
            os.close(descriptor)

    return run


def made(path: Path) -> Path:
    path.write_bytes(b"pod")
    return path


def in_namespaces(volume: Volume) -> None:
    """Unmount in a user and a mount namespace that the pod makes inside its own."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            called(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
            unmounted(volume.content, MNT_DETACH)
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def by_handle(volume: Volume) -> None:
    handle = ctypes.create_string_buffer(136)
    ctypes.c_uint.from_buffer(handle).value = 128
    mount_id = ctypes.c_int()
    path = ctypes.c_char_p(os.fsencode(volume.sealed))
    called(libc.name_to_handle_at(_AT_FDCWD, path, handle, ctypes.byref(mount_id), 0))
    directory = os.open(volume.content, os.O_RDONLY)
    try:
        os.close(called(libc.open_by_handle_at(directory, handle, os.O_RDWR)))
    finally:
        os.close(directory)


def exchanged(one: Path, other: Path) -> None:
    paths = (ctypes.c_char_p(os.fsencode(each)) for each in (one, other))
    first, second = paths
    called(libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE))


def set_attributes(path: Path, *, set_: int = 0, clear: int = 0, namespace: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(set_, clear, 0, namespace)
    path_ = ctypes.c_char_p(os.fsencode(path))
    numbered(442, ctypes.c_int(_AT_FDCWD), path_, ctypes.c_uint(0), attributes, ctypes.c_size_t(32))


def mapped(volume: Volume) -> None:
    with Path("/proc/self/ns/user").open("rb") as namespace:
        set_attributes(volume.content, set_=0x00100000, namespace=namespace.fileno())


def reconfigured(volume: Volume) -> None:
    path = ctypes.c_char_p(os.fsencode(volume.content))
    context = numbered(433, ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(0))
    try:
        numbered(431, ctypes.c_int(context), ctypes.c_uint(0), ctypes.c_char_p(b"rw"), None, ctypes.c_int(0))
        numbered(431, ctypes.c_int(context), ctypes.c_uint(7), None, None, ctypes.c_int(0))
    finally:
        os.close(context)


def seen_without_overlay(volume: Volume) -> None:
    """Look below the overlay: a clone without the mounts in it."""
    path = ctypes.c_char_p(os.fsencode(volume.top))
    tree = numbered(428, ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(1))
    try:
        os.listdir(f"/proc/self/fd/{tree}/.gkm")  # noqa: PTH208 -- a descriptor
    finally:
        os.close(tree)


def bound_without_overlay(volume: Volume) -> None:
    beside = Path("/run/bound")
    beside.mkdir(parents=True, exist_ok=True)
    mounted(volume.top, beside, "", MS_BIND)
    try:
        os.listdir(beside / ".gkm")  # noqa: PTH208 -- names only
    finally:
        unmounted(beside, MNT_DETACH)


def moved(volume: Volume) -> None:
    beside = Path("/run/moved")
    beside.mkdir(parents=True, exist_ok=True)
    mounted(volume.content, beside, "", MS_MOVE)


def overlaid(volume: Volume) -> None:
    """Use the directory of a key as the upper layer of an overlay of the pod."""
    places = [Path("/run") / name for name in ("lower", "work", "merged")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    lower, work, merged = places
    mounted("x", merged, "overlay", 0, f"lowerdir={lower},upperdir={volume.link},workdir={work},userxattr")
    try:
        made(merged / "kernel.bin")
    finally:
        unmounted(merged, MNT_DETACH)


def covered(volume: Volume) -> None:
    mounted("x", volume.content, "tmpfs", 0)
    unmounted(volume.content)


def copied_over(volume: Volume) -> None:
    with ExitStack() as stack:
        source = os.memfd_create("source")
        stack.callback(os.close, source)
        os.write(source, b"pod")
        target = os.open(volume.sealed, os.O_RDONLY)
        stack.callback(os.close, target)
        os.copy_file_range(source, target, 3, 0, 0)


SEALED = "the file has mode 0444, and its owner is in no mapping: no capability of the pod reaches it"
FOREIGN = "the owner of the inode is in no mapping of the mount"
OF_OTHERS = "the pod does not own the inode, and CAP_FOWNER needs an owner in its user namespace"
OWN_LAYER = "the change is in the layer of the pod"
LOCKED = "mounts of a more privileged namespace are locked together"
INITIAL = "the call needs a capability in the initial user namespace"
READING = "the descriptor is open for reading"
CLOSED_TOP = "the top is not writable for others, and its owner is in no mapping"

ATTACKS: dict[str, Attack] = {
    "write": Attack(SEALED, lambda v: opened(v.sealed, os.O_WRONLY), "EROFS", "EACCES"),
    "read and write": Attack(SEALED, lambda v: opened(v.sealed, os.O_RDWR), "EROFS", "EACCES"),
    "append": Attack(SEALED, lambda v: opened(v.sealed, os.O_WRONLY | os.O_APPEND), "EROFS", "EACCES"),
    "open and truncate": Attack(SEALED, lambda v: opened(v.sealed, os.O_WRONLY | os.O_TRUNC), "EROFS", "EACCES"),
    "truncate": Attack(SEALED, lambda v: os.truncate(v.sealed, 0), "EROFS", "EACCES"),
    "write at the top": Attack(SEALED, lambda v: opened(v.top / "index", os.O_WRONLY), "EROFS", "EACCES"),
    "open again for writing": Attack(
        SEALED, with_sealed(lambda fd: opened(Path(f"/proc/self/fd/{fd}"), os.O_RDWR)), "EROFS", "EACCES"
    ),
    "chmod a file": Attack(OF_OTHERS, lambda v: v.sealed.chmod(0o777), "EROFS", "EPERM"),
    "chmod a descriptor": Attack(OF_OTHERS, with_sealed(lambda fd: os.fchmod(fd, 0o777)), "EROFS", "EPERM"),
    "chmod a key": Attack(OF_OTHERS, lambda v: v.link.chmod(0o700), "EROFS", "EPERM"),
    "chmod the content": Attack(OF_OTHERS, lambda v: v.content.chmod(0o777), "EROFS", "EPERM"),
    "chmod the top": Attack(FOREIGN, lambda v: v.top.chmod(0o777), "EOVERFLOW", DONE),
    "chown a file": Attack(OF_OTHERS, lambda v: os.chown(v.sealed, 0, 0), "EROFS", "EPERM"),
    "chown a key": Attack(OF_OTHERS, lambda v: os.chown(v.link, 0, 0), "EROFS", "EPERM"),
    "chown the content": Attack(OF_OTHERS, lambda v: os.chown(v.content, 0, 0), "EROFS", "EPERM"),
    "chown the top": Attack(FOREIGN, lambda v: os.chown(v.top, 0, 0), "EPERM", DONE),
    "set times of a file": Attack(OF_OTHERS, lambda v: os.utime(v.sealed, (1, 1)), "EROFS", "EPERM"),
    "set times of the top": Attack(FOREIGN, lambda v: os.utime(v.top, (1, 1)), "EOVERFLOW", DONE),
    "remove a file": Attack(OWN_LAYER, lambda v: (v.link / "spare.bin").unlink(), "EROFS", DONE),
    "remove a key": Attack(
        "the content is not writable for others", lambda v: shutil.rmtree(v.content / "first"), "EROFS", "EACCES"
    ),
    "remove a link": Attack(CLOSED_TOP, lambda v: (v.top / "spare").unlink(), "EACCES", DONE),
    "remove the content": Attack(FOREIGN, lambda v: v.content.rmdir(), "EOVERFLOW", "EOVERFLOW"),
    "rename a file": Attack(OWN_LAYER, lambda v: (v.link / "other.bin").rename(v.link / "renamed.bin"), "EROFS", DONE),
    "rename a key": Attack(
        "the content is not writable for others",
        lambda v: (v.content / "key").rename(v.content / "k"),
        "EROFS",
        "EACCES",
    ),
    "rename a link": Attack(CLOSED_TOP, lambda v: (v.top / "first").rename(v.top / "second"), "EACCES", DONE),
    "rename the content": Attack(FOREIGN, lambda v: v.content.rename(v.top / "moved"), "EOVERFLOW", "EOVERFLOW"),
    "rename over a link": Attack(CLOSED_TOP, lambda v: made(v.top / "mine").rename(v.top / "replaced"), "EACCES", DONE),
    "rename over the content": Attack(FOREIGN, lambda v: made(v.top / "mine").rename(v.content), "EACCES", "EOVERFLOW"),
    "rename over a file": Attack(
        OWN_LAYER, lambda v: made(v.link / "mine").rename(v.link / "third.bin"), "EROFS", DONE
    ),
    "rename out of a key": Attack(
        "the overlay is another mount", lambda v: (v.link / "kernel.bin").rename(v.top / "out"), "EXDEV", "EXDEV"
    ),
    "exchange a link and the content": Attack(FOREIGN, lambda v: exchanged(v.link, v.content), "EACCES", "EOVERFLOW"),
    "link at the top": Attack(CLOSED_TOP, lambda v: (v.top / "mine.link").symlink_to("/etc"), "EACCES", DONE),
    "create at the top": Attack(CLOSED_TOP, lambda v: made(v.top / "new"), "EACCES", DONE),
    "create in a key": Attack(OWN_LAYER, lambda v: made(v.link / "new"), "EROFS", DONE),
    "create in the content": Attack(
        "the content is not writable for others", lambda v: made(v.content / "new"), "EROFS", "EACCES"
    ),
    "a file without a name at the top": Attack(
        CLOSED_TOP, lambda v: opened(v.top, os.O_TMPFILE | os.O_WRONLY), "EACCES", DONE
    ),
    "a file without a name in a key": Attack(
        OWN_LAYER, lambda v: opened(v.link, os.O_TMPFILE | os.O_WRONLY), "EROFS", DONE
    ),
    "a device at the top": Attack(INITIAL, lambda v: os.mknod(v.top / "null", 0o020666, _NULL), "EACCES", "EPERM"),
    "a device in a key": Attack(INITIAL, lambda v: os.mknod(v.link / "null", 0o020666, _NULL), "EROFS", "EPERM"),
    "a whiteout in a key": Attack(
        "an overlay allows no whiteout of a user",
        lambda v: os.mknod(v.link / "white", 0o020000, _WHITEOUT),
        "EROFS",
        "EPERM",
    ),
    "a whiteout of a link": Attack(
        "the name is there", lambda v: os.mknod(v.link, 0o020000, _WHITEOUT), "EEXIST", "EEXIST"
    ),
    "a pipe in a key": Attack(OWN_LAYER, lambda v: os.mkfifo(v.link / "pipe"), "EROFS", DONE),
    "a user attribute": Attack(SEALED, lambda v: os.setxattr(v.sealed, "user.x", b"1"), "EROFS", "EACCES"),
    "an opaque directory": Attack(
        INITIAL, lambda v: os.setxattr(v.link, "trusted.overlay.opaque", b"y"), "EROFS", "EPERM"
    ),
    "a redirect": Attack(INITIAL, lambda v: os.setxattr(v.link, "trusted.overlay.redirect", b"/"), "EROFS", "EPERM"),
    "an attribute removed": Attack(
        INITIAL, lambda v: os.removexattr(v.link, "trusted.overlay.origin"), "EROFS", "EPERM"
    ),
    "a file capability": Attack(
        INITIAL, lambda v: os.setxattr(v.sealed, "security.capability", _CAPABILITY), "EROFS", "EPERM"
    ),
    "an access list": Attack(
        OF_OTHERS, lambda v: os.setxattr(v.sealed, "system.posix_acl_access", _ACL), "EROFS", "EPERM"
    ),
    "a hard link at the top": Attack(
        "the overlay is another mount", lambda v: os.link(v.sealed, v.top / "hard"), "EXDEV", "EXDEV"
    ),
    "a hard link in a key": Attack(
        "the pod neither owns nor may write the file (fs.protected_hardlinks)",
        lambda v: os.link(v.sealed, v.link / "hard"),
        "EROFS",
        "EPERM",
    ),
    "the immutable flag": Attack(
        OF_OTHERS, with_sealed(lambda fd: fcntl.ioctl(fd, _FS_IOC_SETFLAGS, b"\x10\0\0\0\0\0\0\0")), "EROFS", "EPERM"
    ),
    "a shared mapping": Attack(
        READING, with_sealed(lambda fd: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)), "EACCES", "EACCES"
    ),
    "truncate a descriptor": Attack(READING, with_sealed(lambda fd: os.ftruncate(fd, 0)), "EINVAL", "EINVAL"),
    "write a descriptor": Attack(READING, with_sealed(lambda fd: os.write(fd, b"pod")), "EBADF", "EBADF"),
    "allocate": Attack(READING, with_sealed(lambda fd: os.posix_fallocate(fd, 0, 9)), "EBADF", "EBADF"),
    "copy a range over a file": Attack(READING, copied_over, "EBADF", "EBADF"),
    "clone over a file": Attack(READING, with_sealed(lambda fd: fcntl.ioctl(fd, _FICLONE, fd)), "EBADF", "EBADF"),
    "open by handle": Attack("an overlay without nfs_export has no handles", by_handle, "ENOTSUP", "ENOTSUP"),
    "swap on a file": Attack(INITIAL, lambda v: called(libc.swapon(os.fsencode(v.sealed), 0)), "EPERM", "EPERM"),
    "unmount the content": Attack(LOCKED, lambda v: unmounted(v.content), "EINVAL", "EINVAL"),
    "detach the content": Attack(LOCKED, lambda v: unmounted(v.content, MNT_DETACH), "EINVAL", "EINVAL"),
    "detach the content in new namespaces": Attack(LOCKED, in_namespaces, "EINVAL", "EINVAL"),
    "move the content": Attack(LOCKED, moved, "EINVAL", "EINVAL"),
    "bind without the content": Attack(LOCKED, bound_without_overlay, "EINVAL", "EINVAL"),
    "clone without the content": Attack(LOCKED, seen_without_overlay, "EINVAL", "EINVAL"),
    "remount the content": Attack(INITIAL, lambda v: mounted("x", v.content, "", MS_REMOUNT), "EPERM", "EPERM"),
    "remount the content with another layer": Attack(
        INITIAL,
        lambda v: mounted("x", v.content, "overlay", MS_REMOUNT, "upperdir=/tmp,workdir=/tmp"),
        "EPERM",
        "EPERM",
    ),
    "remount the mount of the content": Attack(
        "nosuid, nodev and ro are locked", lambda v: mounted("x", v.content, "", MS_REMOUNT | MS_BIND), "EPERM", "EPERM"
    ),
    "remount the mount of the top": Attack(
        "nosuid and nodev are locked", lambda v: mounted("x", v.top, "", MS_REMOUNT | MS_BIND), "EPERM", "EPERM"
    ),
    "clear the flags of the content": Attack(
        "nosuid and nodev are locked", lambda v: set_attributes(v.content, clear=0x2 | 0x4), "EPERM", "EPERM"
    ),
    "map the ids of the content": Attack("the ids of an overlay cannot be mapped", mapped, "EINVAL", "EINVAL"),
    "reconfigure the content": Attack(INITIAL, reconfigured, "EPERM", "EPERM"),
    "the key as an upper layer": Attack("an overlay is no upper layer of another one", overlaid, "EINVAL", "EINVAL"),
    "a mount over the content": Attack("it is the pod's own view", covered, DONE, DONE),
}


def outcome(attack: Attack, volume: Volume) -> str:
    try:
        attack.run(volume)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return DONE


def outcomes(top: Path) -> dict[str, str]:
    return {name: outcome(attack, Volume(top)) for name, attack in ATTACKS.items()}


if __name__ == "__main__":
    print(json.dumps(outcomes(Path(sys.argv[1]))))
