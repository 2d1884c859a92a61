"""The observe phase: the state of each cache on this node's disk, read once per pass, so that a pass is consistent."""

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from gkm.hoststate import pointers
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.pulling import entry

from gkm_agent.caches import approvals, decisions
from gkm_agent.caches.approvals import Check
from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.images import CacheImages
from gkm_agent.pulls.retries import RetrySchedule
from gkm_agent.store.pointers import PointerStore, load_pointer

_Stamp = tuple[int, int, int] | None
"""Inode, time and size of a file, None for a missing file. The agent replaces whole files; another writer shows too."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of all caches, and the errors of the caches that the agent could not observe."""

    caches: Mapping[CacheRef, Observed]
    unwanted: tuple[CacheRef, ...] = ()
    """Caches with a pointer that no object wants; empty while the desired state is incomplete."""
    errors: Mapping[CacheRef, Exception] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _CachedFiles:
    stamps: tuple[_Stamp, _Stamp]
    pointer: Pointer | None
    check: Check | None


class StateReader:
    """Reads the pointers and checks of a node, and caches them until their files change: passes are frequent."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._paths: dict[CacheRef, tuple[str, str]] = {}
        self._read: dict[CacheRef, _CachedFiles] = {}

    def read(self, ref: CacheRef, attempt: Attempt | None = None) -> Observed:
        """Return the current state of a cache without its entry."""
        if ref not in self._paths:
            pointer = self.layout.pointer(ref)
            self._paths[ref] = (str(pointer), str(pointer.with_name(approvals.FILE)))
        # Stamps first: the next pass reads a file again that changes between stamp and read.
        stamps = (_stamp(self._paths[ref][0]), _stamp(self._paths[ref][1]))
        read = self._read.get(ref)
        if read is None or read.stamps != stamps:
            read = _CachedFiles(stamps, load_pointer(self.layout, ref), approvals.load(self.layout, ref))
            self._read[ref] = read
        return Observed(read.pointer, read.check, attempt=attempt)

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Drop every cache that is not among `refs`."""
        for ref in [ref for ref in self._paths if ref not in refs]:
            del self._paths[ref]
            self._read.pop(ref, None)


def _stamp(path: str) -> _Stamp:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class Observer:
    """The sources of the observe phase."""

    reader: StateReader
    store: PointerStore
    images: CacheImages
    retries: RetrySchedule

    def observe(
        self, wanted: Mapping[CacheRef, WantedCache], pulling: Container[CacheRef], *, complete: bool
    ) -> Observation:
        """Return the observed state of the wanted caches; if `wanted` is not complete, of all caches on the disk.

        The entry of a cache in `pulling` is left out, because the pull changes it.

        Raises:
            OSError: the directory of the pointers is unreadable.
        """
        others = [ref for ref in pointers.refs(self.store.layout) if ref not in wanted]
        caches = {} if complete else {ref: self.reader.read(ref) for ref in others}
        errors: dict[CacheRef, Exception] = {}
        for ref, cache in wanted.items():
            caches[ref] = self.reader.read(ref, self.retries.attempt_of(cache))
            if ref not in pulling:
                try:
                    caches[ref] = replace(caches[ref], entry_bytes=self._entry_bytes(cache, caches[ref]))
                except Exception as error:  # noqa: BLE001 -- one cache must not stop the others
                    errors[ref] = error
        self.reader.retain_only(caches)
        return Observation(caches, tuple(others) if complete else (), errors)

    def _entry_bytes(self, wanted: WantedCache, observed: Observed) -> int | None:
        """Return the size of the wanted entry; None for a missing or damaged entry, which a pull replaces."""
        pointer = None if decisions.is_foreign(wanted, observed.pointer) else observed.pointer
        digest = decisions.wanted_digest(wanted, pointer, observed.check)
        if not digest or self.store.catalog.damage_of(digest):
            return None
        # The file list of an entry may be long. The agent reads it once, and then the pointer has the size of the
        # entry; the size of a Ready pointer is valid also if it is 0.
        if pointer is not None and pointer.digest == digest and (pointer.size_bytes or _is_ready(pointer)):
            return pointer.size_bytes if entry.exists(self.store.layout, digest) else None
        try:
            found = self.images.find(digest)
        except UnreadableState:
            return None
        return None if found is None else found.size_bytes


def _is_ready(pointer: Pointer) -> bool:
    return pointer.state is CacheState.READY
