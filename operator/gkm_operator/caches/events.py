"""The Events of a cache, derived from the difference between its previous and its new status. Pure.

Both statuses come from the API object, so a new leader or a restarted process sees no transition that did not happen.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gkm.api.caches import Cache, CacheStatus, kind_of
from gkm.api.errors import Reason
from gkm.api.meta import API_VERSION, TRUE, Condition
from gkm.kube.events import EventBody, Regarding

from gkm_operator.caches.conditions import FAILING, NO_CACHE

VERIFY, RESOLVE, SERVE = "Verify", "Resolve", "Serve"
UPDATED = "Updated"

_RECENT, _SKEW = timedelta(minutes=2), timedelta(minutes=1)
"""A new leader follows a killed one within 18 seconds (gkm.kube.leases); the clocks of machines differ."""


def events_of(old: CacheStatus, new: CacheStatus) -> Iterator[EventBody]:
    """Yield the Events of a change of status."""
    updated = old.image == new.image and old.resolved_digest not in (None, new.resolved_digest)
    if updated:
        note = f"{new.image} names another digest: from {old.resolved_digest} to {new.resolved_digest}"
        yield EventBody("Normal", UPDATED, RESOLVE, note)
    before, after = old.condition("Verified"), new.condition("Verified")
    if after is not None and (before is None or (before.status, before.reason) != (after.status, after.reason)):
        yield _of_verified(after)
    if _is_true(new.condition(NO_CACHE)) and not _is_true(old.condition(NO_CACHE)):
        yield from _of_no_cache(new.condition(NO_CACHE))
    before, after = old.condition("Ready"), new.condition("Ready")
    if after is None:
        return
    changed = (before is not None and before.status == TRUE) != (after.status == TRUE)
    if changed or (after.reason in FAILING and (before is None or before.reason != after.reason)):
        yield _of_ready(after, new, updated=updated)
    elif _is_true(new.condition("Error")) and not _is_true(old.condition("Error")):
        yield from _of_failures(new)


def missed_events(cache: Cache, now: datetime) -> Iterator[EventBody]:
    """Yield the Events of the last write of a status if that was a moment ago.

    A process that is killed between a write and its Events emits none; its successor emits them instead, and
    gkm.kube.events drops those that exist already. A condition that changed with the last write carries its time.
    Ready=False is no transition in a new status, unless nodes failed.
    """
    written = cache.status.last_updated
    if written is None or not -_SKEW <= now - datetime.fromisoformat(written) <= _RECENT:
        return
    verified, ready, error = (cache.status.condition(kind) for kind in ("Verified", "Ready", "Error"))
    if verified is not None and verified.last_transition_time == written:
        yield _of_verified(verified)
    unserved = cache.status.condition(NO_CACHE)
    if unserved is not None and unserved.last_transition_time == written:
        yield from _of_no_cache(unserved)
    first = verified is None or verified.last_transition_time == written
    if ready is not None and ready.last_transition_time == written and (ready.status == TRUE or not first):
        yield _of_ready(ready, cache.status, updated=False)
    elif error is not None and error.last_transition_time == written:
        yield from _of_failures(cache.status)


def _of_verified(condition: Condition) -> EventBody:
    good = condition.status == TRUE and condition.reason != Reason.UPDATE_REFUSED
    return EventBody("Normal" if good else "Warning", condition.reason, VERIFY, condition.message or condition.reason)


def _of_no_cache(condition: Condition | None) -> Iterator[EventBody]:
    """Yield the Event of nodes with pods that lack the cache; later nodes change the condition only."""
    if condition is not None and condition.status == TRUE:
        yield EventBody("Warning", NO_CACHE, SERVE, condition.message)


def _of_failures(status: CacheStatus) -> Iterator[EventBody]:
    """Yield the Events of a new failure, with the reason of Ready if that names the failure, else of Error."""
    ready, error = status.condition("Ready"), status.condition("Error")
    if ready is not None and ready.reason in FAILING:
        yield _of_ready(ready, status, updated=False)
    elif error is not None and error.status == TRUE:
        yield EventBody("Warning", error.reason, SERVE, error.message)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == TRUE


def _of_ready(condition: Condition, status: CacheStatus, *, updated: bool) -> EventBody:
    # A new digest is on no node yet, and nodes come and go: only failures are warnings.
    bad = condition.reason == "NotVerified" or condition.reason in FAILING or status.failed_nodes
    good = condition.status == TRUE or updated or not bad
    return EventBody("Normal" if good else "Warning", condition.reason, SERVE, condition.message)


def regarding(cache: Cache) -> Regarding:
    """Return the reference to a cache for an Event."""
    meta = cache.metadata
    return Regarding(API_VERSION, kind_of(cache), meta.name, meta.namespace, meta.uid)
