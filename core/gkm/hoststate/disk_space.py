"""Full disks, and the space that captures may take: kubelet evicts pods from a node whose disk is nearly full."""

import errno
import os
from pathlib import Path
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk and of a used quota."""


def spare_bytes(directory: Path, min_free_percent: float) -> int:
    """Return the free bytes of a disk above the reserved share; 0 if too few inodes are free.

    Args:
        directory: any directory of the disk.
        min_free_percent: the part of the disk that stays free, of bytes and of inodes.

    Raises:
        OSError: the directory cannot be read.
    """
    disk = os.statvfs(directory)
    if disk.f_favail < disk.f_files * min_free_percent / 100:
        return 0
    return max(0, int(disk.f_bavail - disk.f_blocks * min_free_percent / 100)) * disk.f_frsize
