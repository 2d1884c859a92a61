"""Which entries may go, and which of them go first. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import WantedCache
from gkm_agent.store.catalog import EntryInfo


def is_evictable(pointer: Pointer) -> bool:
    """Return whether a cache may lose its entry where room is short: it fits no GPU of this node.

    A GPU that is lost may come back, and usually does.
    """
    return pointer.state is CacheState.INCOMPATIBLE and pointer.reason != Reason.GPU_LOST


def named_digests(known: Iterable[Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that caches of this node name."""
    pointed = {cache.pointer.digest for cache in known if cache.pointer is not None}
    return pointed | {cache.digest or "" for cache in wanted}


def in_use(known: Mapping[CacheRef, Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that a cache of this node names and has a use for."""
    pointers = [cache.pointer for cache in known.values() if cache.pointer is not None]
    found = {pointer.digest for pointer in pointers if not is_evictable(pointer)}
    unfit = {(pointer.ref, pointer.digest) for pointer in pointers if is_evictable(pointer)}
    return found | {cache.digest or "" for cache in wanted if (cache.ref, cache.digest) not in unfit}


def expired(notes: Mapping[str, EntryInfo], unnamed: AbstractSet[str], now: float, keep_seconds: float) -> list[str]:
    """Return which of the entries that no cache names have been kept long enough; a damaged one is kept no longer."""
    return sorted(
        digest
        for digest in unnamed
        if (note := notes.get(digest)) is not None and (note.damage or now - note.unnamed >= keep_seconds)
    )


def eviction_order(notes: Mapping[str, EntryInfo], spare: AbstractSet[str]) -> list[str]:
    """Return the spare entries in the order in which they are evicted, the least recently mounted first."""
    return sorted(spare & notes.keys(), key=lambda digest: (notes[digest].mounted, digest))


def size_of(notes: Mapping[str, EntryInfo], digests: Iterable[str]) -> int:
    """Return the bytes of entries."""
    return sum(notes[digest].size_bytes for digest in digests if digest in notes)
