"""The library of the NVIDIA driver, where no container runtime brings it in. Runs in the probe's process only.

The node's directory in which the driver is installed is mounted into the container (chart value agent.driverRoot). Its
libraries are not searched as a whole: the node's libc beside them must not take the place of the container's.
"""

import ctypes
import errno
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

VARIABLE = "GKM_DRIVER_ROOT"
LIBRARY = "libnvidia-ml.so.1"
# Of RHEL and SUSE, of Debian, and of others; a library for another architecture is not loadable.
_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
)
_MAX_STEPS = 256
"""Names to follow; Linux follows 40 links."""


def load() -> None:
    """Load the library, if the variable is set; later the linker finds it by its name, as it does every loaded one."""
    root = os.environ.get(VARIABLE)
    for directory in _DIRECTORIES if root else ():
        with suppress(OSError):
            ctypes.CDLL(str(_beneath(Path(str(root)), Path(directory, LIBRARY))), mode=ctypes.RTLD_GLOBAL)
            return


def action() -> str:
    """Return what to do where the library is not visible."""
    if not os.environ.get(VARIABLE):
        return "run the container with runtimeClassName nvidia, or set agent.driverRoot"
    return "agent.driverRoot is set: name the directory with the usr/lib or usr/lib64 of the driver"


def _beneath(root: Path, path: Path) -> Path:
    """Resolve links as a process does whose root directory is `root`: absolute ones start there, too.

    Raises:
        OSError: there are too many links.
    """
    resolved, parts = root, deque(path.parts)
    for _ in range(_MAX_STEPS):
        if not parts:
            return resolved
        match parts.popleft():
            case "/":
                resolved = root
            case "..":
                resolved = resolved if resolved == root else resolved.parent
            case part:
                step = resolved / part
                if step.is_symlink():
                    parts.extendleft(reversed(step.readlink().parts))
                else:
                    resolved = step
    raise OSError(errno.ELOOP, "too many links", str(root / path))
