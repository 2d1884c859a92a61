"""Which entries may go, and which of them go first. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.decisions import Known
from gkm_agent.holdings import Note
from gkm_agent.values import WantedCache


def gives_way(pointer: Pointer) -> bool:
    """Return whether a cache may lose its entry where room is short: it fits no GPU of this node.

    A GPU that is lost may come back, and usually does.
    """
    return pointer.state is CacheState.INCOMPATIBLE and pointer.reason != Reason.GPU_LOST


def named(known: Iterable[Known], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that caches of this node name."""
    pointed = {cache.pointer.digest for cache in known if cache.pointer is not None}
    return pointed | {cache.digest or "" for cache in wanted}


def held(known: Mapping[CacheRef, Known], wanted: Iterable[WantedCache]) -> set[str]:
    """Return the digests that a cache of this node names and has a use for."""
    pointers = [cache.pointer for cache in known.values() if cache.pointer is not None]
    found = {pointer.digest for pointer in pointers if not gives_way(pointer)}
    unfit = {(pointer.ref, pointer.digest) for pointer in pointers if gives_way(pointer)}
    return found | {cache.digest or "" for cache in wanted if (cache.ref, cache.digest) not in unfit}


def expired(notes: Mapping[str, Note], unnamed: AbstractSet[str], now: float, keep_seconds: float) -> list[str]:
    """Return which of the entries that no cache names have been kept long enough; a damaged one is kept no longer."""
    return sorted(
        digest
        for digest in unnamed
        if (note := notes.get(digest)) is not None and (note.damage or now - note.unnamed >= keep_seconds)
    )


def to_go(notes: Mapping[str, Note], spare: AbstractSet[str]) -> list[str]:
    """Return the spare entries in the order in which they are evicted, the least recently mounted first."""
    return sorted(spare & notes.keys(), key=lambda digest: (notes[digest].mounted, digest))


def size_of(notes: Mapping[str, Note], digests: Iterable[str]) -> int:
    """Return the bytes of entries."""
    return sum(notes[digest].size_bytes for digest in digests if digest in notes)
