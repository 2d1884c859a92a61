"""Programs of the arm64 root on this kernel, which starts qemu-user for each of them (`programs.enable`).

qemu-user translates a program and leaves the kernel's work to the kernel of this machine, so it is several times as
fast as `support.arm64.machine`, which computes a kernel too. Version 7.2 does not know the calls of the new mount API,
and answers ENOSYS: what mounts needs the machine.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.arm64 import machine, programs, root
from support.host.waiting import scaled

# All processes end with the first one, and the mounts with them.
_NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
# Only a mount can be the root of a mount namespace, which a test makes.
_ENTER = """
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t sysfs sysfs "$0/sys"
mount -t tmpfs tmp "$0/tmp"
mount -t tmpfs run "$0/run"
exec chroot "$0" "$@"
"""


@contextlib.contextmanager
def unpacked() -> Iterator[Path]:
    """Yield the root with the checkout in it, whose programs this kernel can start (root).

    Raises:
        Missing: Debian's qemu-user-static is not installed.
        RuntimeError: the root could not be made.
    """
    programs.enable()
    with tempfile.TemporaryDirectory(prefix="gkm-arm64-") as name:
        directory = Path(name)
        root.unpack(directory)
        root.copy_checkout(directory / root.SOURCE.lstrip("/"))
        yield directory


def run(directory: Path, script: str, seconds: float) -> machine.Ended:
    """Run a script of a shell in the checkout of an unpacked root, and return how it ended (root).

    Raises:
        TimeoutExpired: it took longer than `seconds` (scaled).
    """
    environment = [f"{name}={value}" for name, value in machine.ENVIRONMENT.items()]
    inside = ["/usr/bin/env", "-i", "-C", root.SOURCE, *environment, "sh", "-c", script]
    done = subprocess.run(
        [*_NAMESPACES, "sh", "-euc", _ENTER, str(directory), *inside],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=scaled(seconds),
        check=False,
    )
    return machine.Ended(done.returncode, done.stdout.decode(errors="replace"))
