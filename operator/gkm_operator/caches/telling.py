"""What is told about a cache, as Events: that its verdict changed. Pure."""

from gkm.api.caches import Cache
from gkm.api.meta import API_VERSION, Condition
from gkm.kube.events import Regarding, Told

from gkm_operator.caches.outcome import TRUE

ACTION = "Verify"


def told(old: Condition | None, new: Condition | None) -> Told | None:
    """Return what to tell about a change of the condition Verified; None when there is nothing new."""
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return None
    return Told("Normal" if new.status == TRUE else "Warning", new.reason, ACTION, new.message or new.reason)


def regarding(cache: Cache) -> Regarding:
    """Return the reference to a cache that an Event carries."""
    meta = cache.metadata
    return Regarding(API_VERSION, type(cache).__name__, meta.name, meta.namespace, meta.uid)
