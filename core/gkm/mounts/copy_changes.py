"""Copy the files that a pod added to its volume out of the mount; the pod is not trusted.

Only regular files are copied, within bounds (gkm.mounts.layer_walk).
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate.files import CREATE_FILE, closing
from gkm.mounts import layer_walk
from gkm.mounts.layer_walk import LayerFile, LayerTooLarge, TooManyBytes
from gkm.mounts.link_farm import MountedView

MAX_FILES: Final = 200_000
"""Limit of files and directories in one copy, without the files of the layers below, whose image has a limit."""
_CHUNK: Final = 1 << 20
BLOCK_BYTES: Final = 4096
"""Size that the smallest file is counted with."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of copied files and their bytes, and the number of skipped files of a volume.

    `skipped` counts files that are never copied: links, special files, and names that no image can hold, a single such
    name would make the whole capture unusable.
    """

    files: int
    bytes: int
    skipped: int


def copy_changes(view: MountedView, lowers: Sequence[int], destination: Path, max_bytes: int) -> CopyResult:
    """Copy the files of a volume that its `lowers` (directory descriptors) lack into the new directory `destination`.

    Sizes are in whole blocks.

    Raises:
        LayerTooLarge: more files or deeper directories than the bounds.
        TooManyBytes: more bytes than `max_bytes`.
        OSError: a disk operation failed.
    """
    copying = _Copier(destination, max_bytes)
    destination.mkdir(0o700)
    layer_walk.walk(view, lowers, copying, copying.check_count)
    return CopyResult(copying.files, copying.bytes, copying.skips)


class _Copier:
    def __init__(self, destination: Path, max_bytes: int) -> None:
        self.files = self.bytes = self.skips = 0
        self._unchanged = 0
        self._destination = destination
        self._remaining_bytes = max_bytes
        self._max_bytes = max_bytes

    def check_count(self, entries: int) -> None:
        """Check how many of the entries so far the pod may have added; a large cache below does not count."""
        if entries - self._unchanged > MAX_FILES:
            raise LayerTooLarge(
                f"the pod added more than {MAX_FILES} files and directories to its volume, which is the limit of a copy"
            )

    def skipped(self) -> None:
        self.skips += 1

    def unchanged(self, _file: LayerFile) -> None:
        self._unchanged += 1

    def added(self, file: LayerFile) -> None:
        try:
            opened = file.open()
        except OSError:  # changed by a process that still has the mount
            self.skips += 1
            return
        with closing(opened):
            self._copy(opened, self._destination.joinpath(*file.parents), file.name)

    def _copy(self, source: int, destination: Path, name: str) -> None:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            self.skips += 1
            return
        # Checked before the first read: a sparse file claims any size. An empty file takes a block of the disk too.
        self._remaining_bytes -= max(1, -(-status.st_size // BLOCK_BYTES)) * BLOCK_BYTES
        if self._remaining_bytes < 0:
            raise TooManyBytes(
                f"the files that the pod changed have more than the {self._max_bytes} bytes that its layer or the free "
                "disk space can hold"
            )
        destination.mkdir(0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(destination / name, CREATE_FILE, 0o400), "wb") as target:
            # A file that grows meanwhile is copied up to its first size.
            expected = status.st_size
            while expected and (part := os.read(source, min(_CHUNK, expected))):
                target.write(part)
                expected -= len(part)
        self.files += 1
        self.bytes += status.st_size - expected
