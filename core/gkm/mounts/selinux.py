"""What SELinux wants of a mount: without the label of containers' files, an enforcing node denies pods every read."""

from pathlib import Path
from typing import Final

CONTEXT: Final = "system_u:object_r:container_file_t:s0"
"""The label of files that any container may read (container-selinux). Read, not run: no such node was at hand."""
_ENFORCE: Final = Path("/sys/fs/selinux/enforce")


def mount_options(enforce: Path = _ENFORCE) -> tuple[str, ...]:
    """Return what an overlay's options must say besides, on a machine where SELinux is on."""
    return (f'context="{CONTEXT}"',) if enforce.exists() else ()
