"""Programs for arm64 on a machine of another architecture: the kernel starts qemu-user for them (binfmt_misc)."""

import platform
import subprocess
from pathlib import Path

from support.peers.missing import Missing

RULE = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
"""Of Debian's qemu-user-static. Its flag F makes the kernel hold the emulator open, so that no chroot needs a copy."""
_RULES = Path("/proc/sys/fs/binfmt_misc")


def enable() -> None:
    """Let this kernel start programs for arm64, until the machine is restarted (root).

    Raises:
        Missing: Debian's qemu-user-static is not installed.
        OSError, CalledProcessError: the kernel refused.
    """
    if platform.machine() == "aarch64":
        return
    if not (_RULES / "register").exists():
        # systemd mounts it; a container and a machine without systemd do not have it.
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_RULES)], check=True)
    if (_RULES / RULE.stem).exists():
        return
    if not RULE.exists():
        raise Missing("programs for arm64 need Debian's qemu-user-static: run scripts/debian-packages as root")
    (_RULES / "register").write_text(RULE.read_text(encoding="ascii").strip(), encoding="ascii")
