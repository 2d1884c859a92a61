"""What this node has of each cache, read from the disk: once a turn, so that all of a turn goes by the same."""

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass

from gkm.hoststate import pointers
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.pulling import entry

from gkm_agent.caches import approvals as checks
from gkm_agent.caches.approvals import Check
from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.pulls.images import CacheImages
from gkm_agent.pulls.retries import RetrySchedule
from gkm_agent.store.pointers import PointerStore, load_pointer

_Stamp = tuple[int, int, int] | None
"""Inode, time and size of a file, None where there is none: ours are replaced as a whole, others' hands show too."""


@dataclass(frozen=True, slots=True)
class _CachedFiles:
    """What two files said, and what they were then."""

    stamps: tuple[_Stamp, _Stamp]
    pointer: Pointer | None
    check: Check | None


class StateReader:
    """The pointers and checks of a node, read again only when their files change: a turn comes every few seconds."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._paths: dict[CacheRef, tuple[str, str]] = {}
        self._read: dict[CacheRef, _CachedFiles] = {}

    def read(self, ref: CacheRef, attempt: Attempt | None = None) -> Observed:
        """Return what is known of a cache now, but for its entry."""
        if ref not in self._paths:
            pointer = self.layout.pointer(ref)
            self._paths[ref] = (str(pointer), str(pointer.with_name(checks.FILE)))
        # Before they are read: what changes in between is read once more.
        stamps = (_stamp(self._paths[ref][0]), _stamp(self._paths[ref][1]))
        read = self._read.get(ref)
        if read is None or read.stamps != stamps:
            read = _CachedFiles(stamps, load_pointer(self.layout, ref), checks.load(self.layout, ref))
            self._read[ref] = read
        return Observed(read.pointer, read.check, attempt=attempt)

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget every cache that is not among `refs`."""
        for ref in [ref for ref in self._paths if ref not in refs]:
            del self._paths[ref]
            self._read.pop(ref, None)


def _stamp(path: str) -> _Stamp:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def observe(
    reader: StateReader, wanted: Mapping[CacheRef, WantedCache], tries: RetrySchedule, *, complete: bool
) -> dict[CacheRef, Observed]:
    """Return what is known of every cache that is wanted; where `wanted` is not complete, of all that lie here.

    Entries are left out: which one is meant is a decision.

    Raises:
        OSError: the directory of the pointers cannot be read.
    """
    # While the source is not complete, what lies here is as true as what is wanted.
    others = [] if complete else [ref for ref in pointers.refs(reader.layout) if ref not in wanted]
    known = {ref: reader.read(ref) for ref in others}
    for ref, cache in wanted.items():
        known[ref] = reader.read(ref, tries.attempt_of(cache))
    reader.retain_only(known)
    return known


def entry_bytes(store: PointerStore, images: CacheImages, digest: str, pointer: Pointer | None) -> int | None:
    """Return the size of the entry of a digest; None where there is none of any use, which a pull sets right."""
    layout = store.layout
    if not digest or store.catalog.damage_of(digest):
        return None
    # The list of an entry's files may be long: it is read once, and its size then stands in the pointer. A Ready one
    # says it also where it is 0.
    ready = pointer is not None and pointer.state is CacheState.READY
    if pointer is not None and pointer.digest == digest and (ready or pointer.size_bytes):
        return pointer.size_bytes if entry.exists(layout, digest) else None
    try:
        found = images.find(digest)
    except UnreadableState:
        return None
    return None if found is None else found.size_bytes
