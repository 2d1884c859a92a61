"""What is told about a cache, as Events: what its status says now and did not say before. Pure.

Both are what stands in the object: who starts anew, or follows a leader, sees no transition where there was none.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from gkm.api.caches import Cache, CacheStatus
from gkm.api.errors import Reason
from gkm.api.meta import API_VERSION, Condition
from gkm.kube.events import Regarding, Told

from gkm_operator.caches.outcome import TRUE

VERIFY, RESOLVE, SERVE = "Verify", "Resolve", "Serve"
UPDATED = "Updated"

_MOMENT, _SKEW = timedelta(minutes=2), timedelta(minutes=1)
"""A leader that is killed is followed within 18 seconds (gkm.kube.leases); clocks of machines differ."""


def told(old: CacheStatus, new: CacheStatus) -> Iterator[Told]:
    """Yield what to tell about a change of status."""
    updated = old.image == new.image and old.resolved_digest not in (None, new.resolved_digest)
    if updated:
        note = f"{new.image} names another digest: from {old.resolved_digest} to {new.resolved_digest}"
        yield Told("Normal", UPDATED, RESOLVE, note)
    before, after = old.condition("Verified"), new.condition("Verified")
    if after is not None and (before is None or (before.status, before.reason) != (after.status, after.reason)):
        yield _of_verified(after)
    before, after = old.condition("Ready"), new.condition("Ready")
    if after is not None and (before is not None and before.status == TRUE) != (after.status == TRUE):
        yield _of_ready(after, new, updated=updated)


def unsaid(cache: Cache, now: datetime) -> Iterator[Told]:
    """Yield what the last write of a status had to tell, if that was a moment ago.

    Whoever is killed between a write and its Events tells nobody; who follows tells it instead, and what was told
    already is not told twice (gkm.kube.events). A condition that turned with the last write bears its time. Of Ready,
    False is nothing new where the status was new.
    """
    written = cache.status.last_updated
    if written is None or not -_SKEW <= now - datetime.fromisoformat(written) <= _MOMENT:
        return
    verified, ready = cache.status.condition("Verified"), cache.status.condition("Ready")
    if verified is not None and verified.last_transition_time == written:
        yield _of_verified(verified)
    if ready is not None and ready.last_transition_time == written:
        first = verified is None or verified.last_transition_time == written
        if ready.status == TRUE or not first:
            yield _of_ready(ready, cache.status, updated=False)


def _of_verified(condition: Condition) -> Told:
    good = condition.status == TRUE and condition.reason != Reason.UPDATE_REFUSED
    return Told(_kind(good=good), condition.reason, VERIFY, condition.message or condition.reason)


def _of_ready(condition: Condition, status: CacheStatus, *, updated: bool) -> Told:
    # A new digest is on no node yet, and nodes come and go: only what failed is a warning.
    good = condition.status == TRUE or updated or (condition.reason != "NotVerified" and not status.failed_nodes)
    return Told(_kind(good=good), condition.reason, SERVE, condition.message)


def _kind(*, good: bool) -> Literal["Normal", "Warning"]:
    return "Normal" if good else "Warning"


def regarding(cache: Cache) -> Regarding:
    """Return the reference to a cache that an Event carries."""
    meta = cache.metadata
    return Regarding(API_VERSION, type(cache).__name__, meta.name, meta.namespace, meta.uid)
