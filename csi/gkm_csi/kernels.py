"""Which kernels a program compiled although a cache was mounted, and why the cache did not have them.

Kubelet calls NodeGetVolumeStats once a minute. A volume whose bytes and inodes are those of the last scan costs
nothing, and so does one in which nothing was ever written. One thread scans, one volume at a time; the end of a volume
waits for its own scan only.

A walk over the volume tells the files of the pod from those of the cache. A file of the pod counts as a kernel if it
has the metadata of one; of the cache only kernels of the same names are read. The walk is bounded in files, bytes and
time: a pod wrote them.

Triton 3.x writes `<name>.json` into a directory named by the key (triton/compiler/compiler.py, `compile`). It holds the
options of the compilation, the environment variables that are part of the key, in capitals, and results. The source,
the argument types, the constants and the version of ptxas are parts of the key that it does not hold.
"""

import hashlib
import json
import logging
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from gkm.hoststate.files import closing
from gkm.hoststate.kernel_misses import KernelMissCounts, MissReason
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts import layer_walk, syscalls
from gkm.mounts.layer_walk import LayerFile, LayerTooLarge

SCAN_SECONDS: Final = 5.0
END_SECONDS: Final = 1.0
"""A pod ends; kubelet has other calls to make."""
_LOG = logging.getLogger(__name__)
_Size = tuple[int, int]
OpenLayers = Callable[[VolumeRecord], AbstractContextManager[tuple[int, Sequence[int]]]]
"""Holds the mount of a volume and its lower layers."""
MAX_ENTRIES: Final = 100_000
MAX_KERNELS: Final = 2_000
MAX_SAME_NAME: Final = 16
"""Kernels of one name in the cache that are compared: autotuning makes as many of one function."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK
_NO_LINKS: Final = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_SYMLINKS
_Path = tuple[str, ...]
MAX_BYTES: Final = 64 << 10
"""Triton writes about 2 KiB."""
GROUP: Final = "__grp__"
SUFFIX: Final = ".json"


def used_bytes(usage: os.statvfs_result) -> int:
    """Return the bytes in a private layer. Directories have none, so zero means that nothing was written."""
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


class KernelWatch:
    """The latest scan of each mounted volume with a cache and a private layer."""

    def __init__(self, open_layers: OpenLayers, measured: Callable[[str, KernelMissCounts | None], object]) -> None:
        self._open_layers = open_layers
        self._measured = measured
        self._lock = threading.Lock()
        self._scanned: dict[str, tuple[_Size, KernelMissCounts]] = {}
        self._pending: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kernels")

    def stop(self) -> None:
        """Return when no scan runs any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def usage_measured(self, record: VolumeRecord, usage: os.statvfs_result) -> None:
        """Scan a volume soon if it has changed since its last scan."""
        if not record.is_private or not record.digest or not used_bytes(usage):
            return
        volume, size = record.volume_id, _size(usage)
        with self._lock:
            known = self._scanned.get(volume)
            if volume in self._pending or (known is not None and known[0] == size):
                return
            self._pending.add(volume)
        self._pool.submit(self._scan_soon, record, size)

    def ended(self, record: VolumeRecord, usage: os.statvfs_result) -> KernelMissCounts:
        """Return the kernels that a volume has at its end, before it is unmounted, and forget the volume."""
        misses = KernelMissCounts()
        if used_bytes(usage):
            with self._lock:
                known = self._scanned.get(record.volume_id)
            is_current = known is not None and known[0] == _size(usage)
            misses = known[1] if known and is_current else self._scan(record, END_SECONDS) or misses
        self.forget(record.volume_id)
        return misses

    def forget(self, volume: str) -> None:
        """Forget a volume that is gone."""
        with self._lock:
            self._pending.discard(volume)
            known = self._scanned.pop(volume, None)
        if known is not None:
            self._measured(volume, None)

    def _scan_soon(self, record: VolumeRecord, size: _Size) -> None:
        misses = self._scan(record, SCAN_SECONDS)
        with self._lock:
            # A volume that ended meanwhile is not pending any more.
            if record.volume_id not in self._pending:
                return
            self._pending.discard(record.volume_id)
            if misses is None:
                return
            self._scanned[record.volume_id] = size, misses
        self._measured(record.volume_id, misses)

    def _scan(self, record: VolumeRecord, seconds: float) -> KernelMissCounts | None:
        try:
            with self._open_layers(record) as (mount, lowers):
                return scan(mount, lowers, seconds)
        except Exception:  # noqa: BLE001 -- a count must not hold up a pod
            _LOG.warning("compiled kernels not counted", extra=fields(volume=record.volume_id), exc_info=True)
            return None


def _size(usage: os.statvfs_result) -> _Size:
    return usage.f_bfree, usage.f_ffree


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


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """One kernel; values that are compared only, so they are digests: the files of many kernels may have 128 MB."""

    target: str
    version: str
    environment: str
    options: str


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
        if not is_metadata(file.name):
            return
        if len(self._compiled) >= MAX_KERNELS:
            raise _Ended
        self._compiled.append(((*file.parents, file.name), file.shadows))
        if file.shadows:  # compiled again under its own key: the cache has it
            self.unchanged(file)

    def unchanged(self, file: LayerFile) -> None:
        if is_metadata(file.name):
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
            raw = os.read(opened, MAX_BYTES + 1)
    except OSError:  # gone since the walk
        return None
    return parse(raw) if len(raw) <= MAX_BYTES else None


def reason_of(compiled: KernelMetadata, mounted: Iterable[KernelMetadata]) -> MissReason:
    """Return the reason of a kernel that was compiled; `mounted` are those of the same name in the cache.

    One that differs in fewer respects comes closer. Where several differ, the first in the order of the reasons counts:
    a kernel for another GPU would miss whatever its options are.
    """
    found = [_differences(compiled, each) for each in mounted]
    if not found:
        return MissReason.NO_SUCH_KERNEL
    closest = min(found, key=lambda differences: (len(differences), differences))
    return closest[0][1] if closest else MissReason.OTHER_SOURCE


def _differences(one: KernelMetadata, other: KernelMetadata) -> list[tuple[int, MissReason]]:
    compared = (
        (MissReason.OTHER_GPU, one.target == other.target),
        (MissReason.OTHER_VERSION, one.version == other.version),
        (MissReason.OTHER_ENVIRONMENT, one.environment == other.environment),
        (MissReason.OTHER_OPTIONS, one.options == other.options),
    )
    return [(number, reason) for number, (reason, equal) in enumerate(compared) if not equal]


_NOT_OPTIONS: Final = frozenset(
    {
        *("hash", "target", "name", "triton_version"),
        # A path; the key has the content of the libraries.
        "extern_libs",
        # Results of the compilation.
        *("shared", "tmem_size", "global_scratch_size", "global_scratch_align", "tensordesc_meta"),
        *("profile_scratch_size", "profile_scratch_align"),
    }
)


def is_metadata(name: str) -> bool:
    """Return whether a file of this name may be the metadata of a kernel."""
    return name.endswith(SUFFIX) and not name.startswith(GROUP)


def parse(raw: bytes) -> KernelMetadata | None:
    """Return the metadata in a file of any author; None for a file that is not Triton's."""
    try:
        value = json.loads(raw)
        if not isinstance(value, dict) or not {"hash", "target"} <= value.keys():
            return None
        return KernelMetadata(
            _digest(value["target"]),
            _digest(value.get("triton_version")),
            _digest({key: each for key, each in value.items() if _is_variable(key)}),
            _digest({key: each for key, each in value.items() if key not in _NOT_OPTIONS and not _is_variable(key)}),
        )
    except (ValueError, RecursionError):
        return None


def _is_variable(key: str) -> bool:
    return key.isupper()


def _digest(value: Mapping[str, Any] | object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
