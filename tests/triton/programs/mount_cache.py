"""Run in a mount namespace: mounts CONTENT on TARGET as the CSI process does, with TREE on top unless it is "-".

With UPPER and WORK the mount can be written, and what is written goes to UPPER.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gkm.mounts import beneath, overlay, syscalls


def mount(lowers: Sequence[Path], target: Path, private: Sequence[Path]) -> None:
    """Mount; the first of `lowers` is on top."""
    held = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in lowers]
    point = os.open(target, os.O_PATH | os.O_DIRECTORY)
    if not private:
        overlay.mount_read_only(held, point, "gkm:test@sha256:00")
        return
    upper, work = private
    lowerdir = ":".join(beneath.path_of(descriptor) for descriptor in held)
    options = f"lowerdir={lowerdir},upperdir={upper},workdir={work}"
    syscalls.mount("gkm:test@sha256:00", str(target), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def main(content: str, tree: str, empty: str, target: str, *private: str) -> None:
    """Mount what the arguments say."""
    top = () if tree == "-" else (Path(tree),)
    mount([*top, Path(content), Path(empty)], Path(target), [Path(path) for path in private])


if __name__ == "__main__":
    main(*sys.argv[1:])
