"""The observe phase: the state of each cache on this node's disk, read once per pass, so that a pass is consistent."""

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from gkm.hoststate import pointers
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.pulling import entry

from gkm_agent.caches import approvals, decisions
from gkm_agent.caches.approvals import Approval
from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.scheduler import RetrySchedule
from gkm_agent.store.pointers import PointerStore, load_pointer

_Stamp = tuple[int, int, int] | None
"""Inode, time and size of a file, None for a missing file. The agent replaces whole files; another writer shows too."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of all caches, and the errors of the caches that the agent could not observe."""

    caches: Mapping[CacheRef, Observed]
    unwanted: tuple[CacheRef, ...]
    """Caches that have a pointer but no cache object; empty while the list of objects is incomplete."""
    errors: Mapping[CacheRef, Exception]


@dataclass(frozen=True, slots=True)
class _CachedFiles:
    paths: tuple[str, str]
    stamps: tuple[_Stamp, _Stamp]
    pointer: Pointer | None
    check: Approval | None


class Observer:
    """Reads the state of the caches from the disk; keeps pointers and checks in memory until their files change."""

    def __init__(self, store: PointerStore, retries: RetrySchedule) -> None:
        self._store = store
        self._layout = store.layout
        self._retries = retries
        self._cached: dict[CacheRef, _CachedFiles] = {}

    def observe(
        self, wanted: Mapping[CacheRef, WantedCache], pulling: Container[CacheRef], *, complete: bool
    ) -> Observation:
        """Return the state of the wanted caches on the disk, and also of unwanted ones if `wanted` may be incomplete.

        The entry of a cache in `pulling` is left out, because the pull changes it.

        Raises:
            OSError: the directory of the pointers is unreadable, or a pointer or a check cannot be read now.
        """
        others = [ref for ref in pointers.refs(self._layout) if ref not in wanted]
        caches = {} if complete else {ref: self._read(ref) for ref in others}
        errors: dict[CacheRef, Exception] = {}
        for ref, cache in wanted.items():
            caches[ref] = self._read(ref, self._retries.attempt_of(cache))
            if ref not in pulling:
                try:
                    caches[ref] = replace(caches[ref], entry_bytes=self._entry_bytes(cache, caches[ref]))
                except Exception as error:  # noqa: BLE001 -- one cache must not stop the others
                    errors[ref] = error
        self._cached = {ref: cached for ref, cached in self._cached.items() if ref in caches}
        return Observation(caches, tuple(others) if complete else (), errors)

    def _read(self, ref: CacheRef, attempt: Attempt | None = None) -> Observed:
        """Return the current state of a cache without its entry."""
        cached = self._cached.get(ref)
        paths = cached.paths if cached is not None else self._paths(ref)
        # Stamps first: the next pass reads a file again that changes between stamp and read.
        stamps = _stamp(paths[0]), _stamp(paths[1])
        if cached is None or cached.stamps != stamps:
            cached = _CachedFiles(paths, stamps, load_pointer(self._layout, ref), approvals.load(self._layout, ref))
            self._cached[ref] = cached
        return Observed(cached.pointer, cached.check, attempt=attempt)

    def _paths(self, ref: CacheRef) -> tuple[str, str]:
        pointer = self._layout.pointer(ref)
        return str(pointer), str(pointer.with_name(approvals.FILE))

    def _entry_bytes(self, wanted: WantedCache, observed: Observed) -> int | None:
        """Return the size of the wanted entry; None for a missing or damaged entry, which a pull replaces."""
        pointer = None if decisions.is_foreign(wanted, observed.pointer) else observed.pointer
        digest = decisions.wanted_digest(wanted, pointer, observed.check)
        if not digest or self._store.catalog.damage_of(digest):
            return None
        # The file list of an entry may be long. The agent reads it once, and then the pointer has the size of the
        # entry; the size of a Ready pointer is valid also if it is 0.
        if (
            pointer is not None
            and pointer.digest == digest
            and (pointer.size_bytes or pointer.state is CacheState.READY)
        ):
            return pointer.size_bytes if entry.exists(self._layout, digest) else None
        try:
            found = entry.find(self._layout, digest)
        except UnreadableState:
            return None
        return None if found is None else found.size_bytes


def _stamp(path: str) -> _Stamp:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
