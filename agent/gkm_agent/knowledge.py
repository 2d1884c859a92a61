"""What this node has of each cache, read from the disk: once a turn, so that all of a turn goes by the same."""

from collections.abc import Mapping

from gkm.hoststate import pointers
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import Pointer
from gkm.images import entry

from gkm_agent import checks
from gkm_agent.decisions import Known
from gkm_agent.desk import load_pointer
from gkm_agent.images import CacheImages
from gkm_agent.tries import Tries
from gkm_agent.values import WantedCache


def look(
    layout: Layout, wanted: Mapping[CacheRef, WantedCache], tries: Tries, *, complete: bool
) -> dict[CacheRef, Known]:
    """Return what is known of every cache that is wanted; where `wanted` is not complete, of all that lie here.

    Entries are left out: which one is meant is a decision.

    Raises:
        OSError: the directory of the pointers cannot be read.
    """
    # While the source is not complete, what lies here is as true as what is wanted.
    others = [] if complete else [ref for ref in pointers.refs(layout) if ref not in wanted]
    known = {ref: Known(load_pointer(layout, ref), checks.load(layout, ref)) for ref in others}
    for ref, cache in wanted.items():
        known[ref] = Known(load_pointer(layout, ref), checks.load(layout, ref), attempt=tries.of(cache))
    return known


def entry_bytes(layout: Layout, images: CacheImages, digest: str, pointer: Pointer | None) -> int | None:
    """Return the size of the entry of a digest; None where there is none of any use, which a pull sets right."""
    if not digest:
        return None
    # The list of an entry's files may be long: it is read once, and its size then stands in the pointer.
    if pointer is not None and pointer.digest == digest and pointer.size_bytes:
        return pointer.size_bytes if entry.is_there(layout, digest) else None
    try:
        found = images.find(digest)
    except UnreadableState:
        return None
    return None if found is None else found.size_bytes
