"""cpio archives, of which a kernel makes its first root file system; archives one after the other are one."""

import shlex
from pathlib import Path


def command(directory: Path, archive: Path) -> str:
    """Return the shell command that packs a directory; busybox, which is on each machine of the tests."""
    return f"cd {shlex.quote(str(directory))} && busybox find . | busybox cpio -o -H newc >{shlex.quote(str(archive))}"
