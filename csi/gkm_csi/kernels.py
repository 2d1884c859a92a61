"""Find the kernels that a program compiled although a cache was mounted, and why the cache did not have them.

Kubelet calls NodeGetVolumeStats once a minute. A volume whose bytes and inodes have not changed is not scanned. One
thread scans, one volume at a time; an unmount waits for the scan of its volume only.

A walk over the volume tells files of the pod from files of the cache. The table of runtimes (gkm.runtimes.keys) says
which files belong to cache entries, and which state the keys of entries. The walk is bounded in files, bytes and time,
because a pod wrote the files.
"""

import logging
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

from gkm.hoststate.files import closing
from gkm.hoststate.kernel_misses import KernelMissCounts, RuntimeMisses
from gkm.hoststate.logs import fields
from gkm.hoststate.records import VolumeRecord
from gkm.mounts import layer_walk, syscalls
from gkm.mounts.layer_walk import LayerFile, LayerTooLarge
from gkm.mounts.link_farm import MountedView
from gkm.runtimes import RUNTIMES
from gkm.runtimes.keys import UNTOLD, Difference, Entries, Key, MissReason, closest

SCAN_SECONDS: Final = 5.0
END_SECONDS: Final = 1.0
"""Seconds for the last scan at unmount: kubelet's other calls wait."""
_LOG = logging.getLogger(__name__)
LayerState = tuple[int, int]
OpenLayers = Callable[[VolumeRecord], AbstractContextManager[tuple[MountedView, Sequence[int]]]]
"""A function that opens the mount of a volume and its lower layers."""
MAX_ENTRIES: Final = 100_000
MAX_KERNELS: Final = 2_000
MAX_SAME_NAME: Final = 16
"""Limit of cache keys of the same function that are compared with one compiled kernel; autotuning makes that many."""
MAX_DIRECTORIES: Final = 64
"""Limit of directories whose key is read; a model has one for each rank and component."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK
_NO_LINKS: Final = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_SYMLINKS


def used_bytes(usage: os.statvfs_result) -> int:
    """Return the bytes in a private layer. Directories have 0 bytes, so 0 means that no file was written."""
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def layer_state(usage: os.statvfs_result) -> LayerState:
    """Return the free blocks and inodes of a private layer: any write changes one of them."""
    return usage.f_bfree, usage.f_ffree


class KernelWatch:
    """Scans mounted volumes that have a cache and a private layer, and keeps the latest result of each."""

    def __init__(self, open_layers: OpenLayers, measured: Callable[[str, RuntimeMisses | None], object]) -> None:
        self._open_layers = open_layers
        self._measured = measured
        self._lock = threading.Lock()
        self._scanned: dict[str, tuple[LayerState, RuntimeMisses]] = {}
        self._pending: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kernels")

    def stop(self) -> None:
        """Wait until no scan of a volume runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def usage_measured(self, record: VolumeRecord, usage: os.statvfs_result) -> None:
        """Scan a volume soon, if its usage has changed since its last scan."""
        if not record.is_private or not record.digest or not used_bytes(usage):
            return
        volume, state = record.volume_id, layer_state(usage)
        with self._lock:
            known = self._scanned.get(volume)
            if volume in self._pending or (known is not None and known[0] == state):
                return
            self._pending.add(volume)
        self._pool.submit(self._scan_soon, record, state)

    def ended(self, record: VolumeRecord, usage: os.statvfs_result) -> RuntimeMisses:
        """Scan a volume a last time before its unmount.

        Return its entries that were not in the cache, and forget the volume.
        """
        misses: RuntimeMisses = {}
        if used_bytes(usage):
            with self._lock:
                known = self._scanned.get(record.volume_id)
            is_current = known is not None and known[0] == layer_state(usage)
            misses = known[1] if known and is_current else self._scan(record, END_SECONDS) or misses
        self.forget(record.volume_id)
        return misses

    def forget(self, volume: str) -> None:
        """Forget a volume that is gone."""
        with self._lock:
            self._pending.discard(volume)
            if self._scanned.pop(volume, None) is not None:
                self._measured(volume, None)

    def _scan_soon(self, record: VolumeRecord, state: LayerState) -> None:
        misses = self._scan(record, SCAN_SECONDS)
        with self._lock:
            # A volume that ended meanwhile is not pending any more; one that ends now is forgotten after its report.
            if record.volume_id not in self._pending:
                return
            self._pending.discard(record.volume_id)
            if misses is None:
                return
            self._scanned[record.volume_id] = state, misses
            self._measured(record.volume_id, misses)

    def _scan(self, record: VolumeRecord, seconds: float) -> RuntimeMisses | None:
        try:
            with self._open_layers(record) as (view, lowers):
                return scan(view, lowers, seconds)
        except Exception:  # noqa: BLE001 -- a count must not hold up a pod
            _LOG.warning(
                "compiled kernels of a volume not counted", extra=fields(volume=record.volume_id), exc_info=True
            )
            return None


def _tail(path: str) -> list[str]:
    """Return the directory and name of an entry; the directory has the name of its key."""
    return path.split("/")[-2:]


class _Ended(Exception):
    """A bound is reached."""


def scan(view: MountedView, lowers: Sequence[int], seconds: float) -> RuntimeMisses:
    """Return the entries of a volume that `lowers`, descriptors of its lower directories, do not have.

    Raises:
        OSError: the volume cannot be read at all.
    """
    scanning = _Scan(view, lowers, time.monotonic() + seconds)
    try:
        layer_walk.walk(view, lowers, scanning, scanning.check)
    except (_Ended, LayerTooLarge):
        scanning.complete = False
    return scanning.misses()


class _Scan:
    def __init__(self, view: MountedView, lowers: Sequence[int], deadline: float) -> None:
        self.complete = True
        self._view = view
        self._lowers = lowers
        self._deadline = deadline
        self._compiled = 0
        self._runtimes = {each.name: _RuntimeScan(each.entries) for each in RUNTIMES if each.entries is not UNTOLD}

    def check(self, entries: int) -> None:
        if entries > MAX_ENTRIES or time.monotonic() > self._deadline:
            raise _Ended

    def skipped(self) -> None:
        pass

    def added(self, file: LayerFile) -> None:
        path = "/".join((*file.parents, file.name))
        for scanned in self._runtimes.values():
            is_new = scanned.added(path, shadows=file.shadows)
            if is_new and self._compiled >= MAX_KERNELS:
                scanned.compiled.popitem()
                raise _Ended
            self._compiled += is_new
        if file.shadows:  # compiled again under its own key: the cache has it
            self.unchanged(file)

    def unchanged(self, file: LayerFile) -> None:
        path = "/".join((*file.parents, file.name))
        for scanned in self._runtimes.values():
            scanned.unchanged(path)

    def misses(self) -> RuntimeMisses:
        """Read what the walk found; return the runtimes that have entries."""
        counted = {name: self._count(scanned) for name, scanned in self._runtimes.items()}
        return {
            name: KernelMissCounts(dict(reasons), len(self._runtimes[name].mounted), self.complete, text)
            for name, (reasons, text) in counted.items()
            if reasons or self._runtimes[name].mounted or not self.complete
        }

    def _count(self, scanned: "_RuntimeScan") -> tuple[Counter[MissReason], str]:
        reasons: Counter[MissReason] = Counter()
        texts: dict[MissReason, str] = {}
        for path in scanned.compiled.values():
            if time.monotonic() > self._deadline:
                self.complete = False
                break
            found = self._difference(scanned, path)
            if found is not None:
                reasons[found.reason] += 1
                texts.setdefault(found.reason, found.text)
        # The text of the reason of most entries.
        return reasons, texts[max(reasons, key=lambda each: reasons[each])] if reasons else ""

    def _difference(self, scanned: "_RuntimeScan", path: str) -> Difference | None:
        """Return why an entry was compiled; None if the file is no entry."""
        entries = scanned.entries
        if not entries.key_file.fullmatch(path):
            return self._of_directory(scanned, path)
        compiled = self._of_pod(entries, path)
        if compiled is None and entries.by_content:
            return None
        if scanned.added_keys[path] or any(_tail(each) == _tail(path) for each in scanned.same_kind(path)):
            return Difference(MissReason.OTHER_PATH)
        return self._of_keys(scanned, compiled, path) or Difference(entries.equal)

    def _of_directory(self, scanned: "_RuntimeScan", path: str) -> Difference:
        """Return why the directory of an entry differs from the cache's; one without a key has an unknown reason."""
        if scanned.is_of_cache(path):
            return Difference(scanned.entries.equal)
        key_path = scanned.nearest_key(path)
        if key_path is None:
            return Difference(MissReason.UNKNOWN)
        if key_path not in scanned.directories:
            compiled = self._of_pod(scanned.entries, key_path)
            # Without a difference it is one in a factor that the file does not state, such as a secret.
            found = self._of_keys(scanned, compiled, key_path) or Difference(MissReason.UNKNOWN)
            scanned.directories[key_path] = found
        return scanned.directories[key_path]

    def _of_keys(self, scanned: "_RuntimeScan", compiled: Key | None, path: str) -> Difference | None:
        """Return the first difference from the closest key of the cache; None if no stated factor differs."""
        same = scanned.same_kind(path)
        if compiled is not None and not same:
            # Without its whole list a missing name is no proof; nor is a cache whose directories state no key.
            is_known = self.complete and (scanned.has_keys or not scanned.entries.is_shared)
            return Difference(MissReason.NO_SUCH_KERNEL if is_known else MissReason.UNKNOWN)
        known = [key for each in same if (key := scanned.read(each, self._of_cache)) is not None]
        found = closest(compiled, known) if compiled is not None else None
        if found is None:
            return Difference(MissReason.UNKNOWN)
        return found[0] if found else None

    def _of_pod(self, entries: Entries, path: str) -> Key | None:
        return self._key(self._view.holder(path.partition("/")[0]), entries, path)

    def _of_cache(self, entries: Entries, path: str) -> Key | None:
        # A key names no path of a mount, so it is in the entry itself, the lowest layer.
        return self._key(self._lowers[-1], entries, path) if self._lowers else None

    @staticmethod
    def _key(top: int, entries: Entries, path: str) -> Key | None:
        try:
            with closing(syscalls.openat2(top, path, _READ, _NO_LINKS)) as opened:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    return None
                raw = os.read(opened, entries.max_bytes + 1)
        except OSError:  # gone since the walk
            return None
        return entries.read(raw[: entries.max_bytes]) if entries.may_truncate or len(raw) <= entries.max_bytes else None


class _RuntimeScan:
    """The entries and key files of one runtime that a walk found."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.compiled: dict[str, str] = {}
        """The first path of each entry that has a file of the pod."""
        self.mounted: set[str] = set()
        self.added_keys: dict[str, bool] = {}
        """The key files of the pod; whether the cache has the same path."""
        self.directories: dict[str, Difference] = {}
        """Why a directory of the pod differs from the cache's, by its key file."""
        self._mounted_keys: dict[str, list[str]] = {}
        self._mounted_homes: set[str | None] = set()
        self._read: dict[str, Key | None] = {}

    def added(self, path: str, *, shadows: bool) -> bool:
        """Take a file of the pod; return whether an entry begins with it."""
        found = self.entries.path.fullmatch(path)
        if self.entries.key_file.fullmatch(path) and (found or len(self.added_keys) < MAX_DIRECTORIES):
            self.added_keys[path] = shadows
        if found is None or found["entry"] in self.compiled:
            return False
        self.compiled[found["entry"]] = path
        return True

    def unchanged(self, path: str) -> None:
        """Take a file of the cache."""
        if key := self.entries.key_file.fullmatch(path):
            self._mounted_keys.setdefault(key["kind"], []).append(path)
            self._mounted_homes.add(key.groupdict().get("home"))
        if found := self.entries.path.fullmatch(path):
            self.mounted.add(found["entry"])

    @property
    def has_keys(self) -> bool:
        """Return whether the cache states any key."""
        return bool(self._mounted_keys)

    def same_kind(self, key_path: str) -> Sequence[str]:
        """Return some key files of the cache that are compared with one."""
        found = self.entries.key_file.fullmatch(key_path)
        return self._mounted_keys.get(found["kind"], ())[:MAX_SAME_NAME] if found else ()

    def is_of_cache(self, path: str) -> bool:
        """Return whether the cache has the directory of an entry, with its key."""
        found = self.entries.path.fullmatch(path)
        home = found.groupdict().get("home") if found else None
        return home is not None and home in self._mounted_homes

    def nearest_key(self, path: str) -> str | None:
        """Return the key file of the pod with the longest path in common."""
        return max(self.added_keys, key=lambda each: len(os.path.commonpath((each, path))), default=None)

    def read(self, path: str, reader: Callable[[Entries, str], Key | None]) -> Key | None:
        """Return the key in a key file of the cache, which is read once."""
        if path not in self._read:
            self._read[path] = reader(self.entries, path)
        return self._read[path]
