"""Rules for eviction and collection: which entries may be removed, and in which order. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import WantedCache
from gkm_agent.store.catalog import EntryInfo


def is_evictable(pointer: Pointer) -> bool:
    """Return whether a full disk may evict the entry of this cache, because the cache fits no GPU of this node.

    The entry of a cache for a lost GPU stays, because the GPU usually returns.
    """
    return pointer.state is CacheState.INCOMPATIBLE and pointer.reason != Reason.GPU_LOST


def named_digests(observed: Iterable[Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that caches of this node name."""
    pointed = {cache.pointer.digest for cache in observed if cache.pointer is not None}
    return pointed | {cache.digest or "" for cache in wanted}


def in_use(observed: Mapping[CacheRef, Observed], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that a cache of this node names, except caches that fit no GPU here."""
    pointers = [cache.pointer for cache in observed.values() if cache.pointer is not None]
    found = {pointer.digest for pointer in pointers if not is_evictable(pointer)}
    unfit = {(pointer.ref, pointer.digest) for pointer in pointers if is_evictable(pointer)}
    return found | {cache.digest or "" for cache in wanted if (cache.ref, cache.digest) not in unfit}


def expired(entries: Mapping[str, EntryInfo], unnamed: AbstractSet[str], now: float, keep_seconds: float) -> list[str]:
    """Return the entries that no cache has named for longer than `keep_seconds`; damaged entries at once."""
    return sorted(
        digest
        for digest in unnamed
        if (info := entries.get(digest)) is not None and (info.damage or now - info.unnamed >= keep_seconds)
    )


def eviction_order(entries: Mapping[str, EntryInfo], spare: AbstractSet[str]) -> list[str]:
    """Return the digests in `spare`, which may be evicted: the least recently mounted entry first."""
    return sorted(spare & entries.keys(), key=lambda digest: (entries[digest].mounted, digest))


def size_of(entries: Mapping[str, EntryInfo], digests: Iterable[str]) -> int:
    """Return the total size in bytes of the entries with these digests."""
    return sum(entries[digest].size_bytes for digest in digests if digest in entries)
