"""Check whether this kernel can map file owners on a tmpfs, which pods in user namespaces need."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from gkm.hoststate.files import closing
from gkm.mounts import syscalls

_TOO_OLD: Final = frozenset({errno.EINVAL, errno.ENOSYS})
_MAP: Final = "0 655360 65536"
"""Ids of the namespace, of the machine, and their number."""
_READY: Final = b"\0"


def missing_feature() -> str:
    """Return why pods in user namespaces cannot have volumes on this machine, "" if they can; leave no mount.

    Call it while the process has one thread: it forks for some milliseconds.
    """
    try:
        with _user_namespace() as namespace:
            return _problem(namespace)
    except OSError as error:
        # A process with threads cannot look again: it would have to fork.
        return (
            f"no user namespace can be made ({error.strerror}): raise user.max_user_namespaces, then delete the pod "
            "gkm-csi of this node, which looks at its start only"
        )


def _problem(namespace: int) -> str:
    try:
        with closing(syscalls.fsmount("tmpfs")) as mount:
            syscalls.map_ids(mount, namespace)
    except OSError as error:
        if error.errno in _TOO_OLD:
            return "the kernel cannot map the ids of a tmpfs: Linux 6.3 or newer is needed"
        return f"the ids of a tmpfs cannot be mapped ({error.strerror})"
    return ""


@contextmanager
def _user_namespace() -> Iterator[int]:
    """Hold a descriptor of a new user namespace; a child makes it, because this process must not be in it."""
    told, telling = os.pipe()
    waiting, ending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.close(ending)
        _stay_in_user_namespace(telling, waiting)
    os.close(telling)
    os.close(waiting)
    try:
        with closing(told):
            if answer := os.read(told, 16).removeprefix(_READY):
                raise OSError(int(answer), os.strerror(int(answer)))
        for file in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{file}").write_text(_MAP, encoding="ascii")
        with closing(os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)) as namespace:
            yield namespace
    finally:
        os.close(ending)
        os.waitpid(child, 0)


def _stay_in_user_namespace(telling: int, waiting: int) -> NoReturn:
    try:
        syscalls.enter_user_namespace()
        os.write(telling, _READY)
        os.read(waiting, 1)  # ends with the parent too
    except OSError as error:
        os.write(telling, str(error.errno).encode())
    finally:
        os._exit(0)
