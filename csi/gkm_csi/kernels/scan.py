"""Find the kernels that a program compiled into its volume; bounded in files, bytes and time: a pod wrote them.

A walk over the volume tells the files of the pod from those of the cache. A file of the pod counts as a kernel if it
has the metadata of one; of the cache only kernels of the same names are read.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

from gkm.hoststate.files import closing
from gkm.hoststate.kernel_misses import KernelMissCounts, MissReason
from gkm.mounts import layer_walk, syscalls
from gkm.mounts.layer_walk import LayerFile, LayerTooLarge

from gkm_csi.kernels import metadata
from gkm_csi.kernels.metadata import KernelMetadata
from gkm_csi.kernels.reasons import reason_of

MAX_ENTRIES: Final = 100_000
MAX_KERNELS: Final = 2_000
MAX_SAME_NAME: Final = 16
"""Kernels of one name in the cache that are compared: autotuning makes as many of one function."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK
_NO_LINKS: Final = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_SYMLINKS
_Path = tuple[str, ...]


class _Ended(Exception):
    """A bound is reached."""


def scan(mount: int, lowers: Sequence[int], seconds: float) -> KernelMissCounts:
    """Return the kernels that `mount` has beyond `lowers` (descriptors of directories, the first on top).

    Raises:
        OSError: the volume cannot be read at all.
    """
    scanning = _Scan(mount, lowers, time.monotonic() + seconds)
    try:
        layer_walk.walk(mount, lowers, scanning, scanning.check)
    except (_Ended, LayerTooLarge):
        scanning.complete = False
    return scanning.misses()


class _Scan:
    def __init__(self, mount: int, lowers: Sequence[int], deadline: float) -> None:
        self.complete = True
        self._mount = mount
        self._lowers = lowers
        self._deadline = deadline
        self._compiled: list[tuple[_Path, bool]] = []
        self._mounted: dict[str, list[_Path]] = {}
        self._mounted_kernels = 0
        self._read: dict[_Path, KernelMetadata | None] = {}

    def check(self, entries: int) -> None:
        if entries > MAX_ENTRIES or time.monotonic() > self._deadline:
            raise _Ended

    def skipped(self) -> None:
        pass

    def added(self, file: LayerFile) -> None:
        if not metadata.is_metadata(file.name):
            return
        if len(self._compiled) >= MAX_KERNELS:
            raise _Ended
        self._compiled.append(((*file.parents, file.name), file.shadows))
        if file.shadows:  # compiled again under its own key: the cache has it
            self.unchanged(file)

    def unchanged(self, file: LayerFile) -> None:
        if metadata.is_metadata(file.name):
            self._mounted_kernels += 1
            self._mounted.setdefault(file.name, []).append((*file.parents, file.name))

    def misses(self) -> KernelMissCounts:
        """Read what the walk found."""
        counted: Counter[MissReason] = Counter()
        for path, shadows in self._compiled:
            if time.monotonic() > self._deadline:
                self.complete = False
                break
            reason = self._reason(path, shadows=shadows)
            if reason is not None:
                counted[reason] += 1
        return KernelMissCounts(dict(counted), self._mounted_kernels, complete=self.complete)

    def _reason(self, path: _Path, *, shadows: bool) -> MissReason | None:
        """Return why a kernel was compiled; None if the file is no metadata of a kernel."""
        compiled = _metadata(self._mount, path)
        if compiled is None:
            return None
        if shadows:
            return MissReason.OTHER_PATH
        same = islice(self._mounted.get(path[-1], ()), MAX_SAME_NAME)
        known = [found for found in map(self._of_cache, same) if found is not None]
        if not known and path[-1] in self._mounted:
            return MissReason.UNKNOWN
        # Without its whole list a missing name proves nothing.
        reason = reason_of(compiled, known)
        return MissReason.UNKNOWN if reason is MissReason.NO_SUCH_KERNEL and not self.complete else reason

    def _of_cache(self, path: _Path) -> KernelMetadata | None:
        if path not in self._read:
            # Metadata names no path of a mount, so it is in the entry itself, the lowest layer.
            self._read[path] = _metadata(self._lowers[-1], path) if self._lowers else None
        return self._read[path]


def _metadata(top: int, path: _Path) -> KernelMetadata | None:
    try:
        with closing(syscalls.openat2(top, "/".join(path), _READ, _NO_LINKS)) as opened:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            raw = os.read(opened, metadata.MAX_BYTES + 1)
    except OSError:  # gone since the walk
        return None
    return metadata.parse(raw) if len(raw) <= metadata.MAX_BYTES else None
