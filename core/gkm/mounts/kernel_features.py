"""Check which kernel features this machine lacks for mounting, without mounting anything."""

import errno
import os

from gkm.mounts import syscalls


def missing_features() -> list[str]:
    """Return a message that a person can act on for each missing feature."""
    return [problem for problem in (_openat2_problem(), _overlay_problem()) if problem]


def _openat2_problem() -> str:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(syscalls.openat2(root, ".", os.O_PATH | os.O_DIRECTORY, syscalls.RESOLVE_BENEATH))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "openat2 is missing: Linux 5.6 or newer is needed"
        return f"openat2 does not work ({error.strerror}): a seccomp profile may forbid it"
    finally:
        os.close(root)
    return ""


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
