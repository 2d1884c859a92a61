"""The rules of eviction and collection: the entries that may go, and their order. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import WantedCache
from gkm_agent.store.catalog import EntryInfo


def is_evictable(pointer: Pointer) -> bool:
    """Return whether a cache may lose its entry on a full disk: it fits no GPU of this node.

    A lost GPU does not count, because it usually returns.
    """
    return pointer.state is CacheState.INCOMPATIBLE and pointer.reason != Reason.GPU_LOST


def named_digests(observed: Iterable[Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that caches of this node name."""
    pointed = {cache.pointer.digest for cache in observed if cache.pointer is not None}
    return pointed | {cache.digest or "" for cache in wanted}


def in_use(observed: Mapping[CacheRef, Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that a cache of this node names and may use."""
    pointers = [cache.pointer for cache in observed.values() if cache.pointer is not None]
    found = {pointer.digest for pointer in pointers if not is_evictable(pointer)}
    unfit = {(pointer.ref, pointer.digest) for pointer in pointers if is_evictable(pointer)}
    return found | {cache.digest or "" for cache in wanted if (cache.ref, cache.digest) not in unfit}


def expired(entries: Mapping[str, EntryInfo], unnamed: AbstractSet[str], now: float, keep_seconds: float) -> list[str]:
    """Return the unnamed entries whose retention has ended; a damaged entry has no retention."""
    return sorted(
        digest
        for digest in unnamed
        if (info := entries.get(digest)) is not None and (info.damage or now - info.unnamed >= keep_seconds)
    )


def eviction_order(entries: Mapping[str, EntryInfo], spare: AbstractSet[str]) -> list[str]:
    """Return the spare entries in the order of eviction, the least recently mounted first."""
    return sorted(spare & entries.keys(), key=lambda digest: (entries[digest].mounted, digest))


def size_of(entries: Mapping[str, EntryInfo], digests: Iterable[str]) -> int:
    """Return the total size of some entries in bytes."""
    return sum(entries[digest].size_bytes for digest in digests if digest in entries)
