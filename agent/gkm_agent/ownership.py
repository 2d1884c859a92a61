"""Pointers that were written for another object of the same name: they prove nothing for the one that is there now.

They are replaced before anything else is decided about the cache: a registry may be slow, and other pulls may come
first, and until then pods would mount what somebody else had access to.
"""

import errno
from collections.abc import Callable
from dataclasses import replace

from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.decisions import Observed, make_pointer
from gkm_agent.caches.model import WantedCache
from gkm_agent.store.pointers import PointerStore


def is_of_another(wanted: WantedCache, pointer: Pointer | None) -> bool:
    """Return whether a pointer was written for another object than `wanted`, or for one that is not known."""
    return pointer is not None and pointer.uid != wanted.uid


def disowned(store: PointerStore, wanted: WantedCache, known: Observed, save: Callable[[Pointer], Pointer]) -> Observed:
    """Replace the pointer of another object by one that is Pending, with `save`; return what is known then.

    A full disk takes no pointer: then what is known of the cache goes, for what has no pointer is not Ready.

    Raises:
        OSError: the disk refused.
    """
    if not is_of_another(wanted, known.pointer):
        return known
    why = "this object has not shown its access to the image on this node: the registry is asked"
    try:
        pointer = save(make_pointer(wanted, wanted.digest or "", CacheState.PENDING, message=why))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        store.remove(wanted.ref)
        return replace(known, pointer=None, check=None)
    return replace(known, pointer=pointer)
