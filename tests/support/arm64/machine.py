"""An arm64 machine without hardware: qemu-system-aarch64 computes its processors, and Debian's kernel runs on them.

Its root file system is in memory: the root of `support.arm64.root`, and our checkout in /src. It has no network but its
loopback, ends with its command, and leaves nothing behind.
"""

import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.arm64 import debian, root
from support.host.waiting import scaled
from support.peers.missing import Missing

QEMU = "qemu-system-aarch64"
HARDWARE = (
    *("-machine", "virt", "-cpu", "neoverse-n1", "-smp", "2", "-m", "6G"),
    *("-display", "none", "-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot"),
)
"""This processor has pages of 4, 16 and 64 KiB, and signs no pointers, which qemu computes slowly."""
SLOWER = 20
"""By how much deadlines of tests are longer in it."""
ENVIRONMENT = {
    "HOME": "/root",
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "GKM_TIER": "check",
    "GKM_TEST_TIME_SCALE": str(SLOWER),
}
_EXPORTED = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
INIT = f"""#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
insmod /overlay.ko
ip link set lo up
export {_EXPORTED}
cd {root.SOURCE}
sh /command </dev/null
echo "ended: $?"
echo o >/proc/sysrq-trigger
sleep 60
"""
_ENDED = re.compile(r"(?m)^ended: ([0-9]+)$")


@dataclass(frozen=True)
class Ended:
    """The exit code of a command, None if the machine stopped before, and all that the console had."""

    code: int | None
    console: str


def run(page_kib: int, script: str, seconds: float) -> Ended:
    """Start a machine whose pages have so many KiB, run a script of a shell in the checkout, and return how it ended.

    Raises:
        Missing: Debian's qemu-system-arm is not installed.
        RuntimeError: the root or the kernel could not be made.
        TimeoutExpired: it took longer than `seconds` (scaled).
    """
    if not shutil.which(QEMU):
        raise Missing(f"an arm64 machine needs {QEMU} (Debian: qemu-system-arm)")
    kernel = debian.kernel(page_kib)
    with tempfile.TemporaryDirectory(prefix="gkm-arm64-") as name:
        first = _first_root(kernel, script, Path(name))
        boot = ("-kernel", str(kernel / "vmlinuz"), "-initrd", str(first), "-append", "console=ttyAMA0 panic=-1 quiet")
        done = subprocess.run(
            [QEMU, *HARDWARE, *boot],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=scaled(seconds),
            check=False,
        )
    console = done.stdout.decode(errors="replace").replace("\r\n", "\n")
    found = _ENDED.search(console)
    return Ended(int(found[1]) if found else None, console)


def tests(*arguments: str) -> str:
    """Return the script that runs pytest."""
    words = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    return f"{shlex.join(words)}\n"


def _first_root(kernel: Path, script: str, directory: Path) -> Path:
    """Return one archive of the root, our files, a module of the kernel and the script."""
    added, first = directory / "added", directory / "root.cpio"
    root.copy_checkout(Path(f"{added}{root.SOURCE}"))
    shutil.copy(kernel / "overlay.ko", added)
    (added / "command").write_text(script, encoding="utf-8")
    (added / "init").write_text(INIT, encoding="utf-8")
    (added / "init").chmod(0o755)
    shutil.copy(root.archive(), first)
    subprocess.run(["sh", "-c", root.packing(added, first)], check=True)
    return first
