"""One pass over the captures of a namespace: register, report, end."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry

from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.captures.announcements import Announcement, merged
from gkm_operator.captures.images import CapturedImages
from gkm_operator.captures.observed import ObservedCaptures
from gkm_operator.captures.retention import Retention, RetentionPlan, RetentionReason, RetentionVerdict
from gkm_operator.captures.writer import CaptureWriter

_LOG = logging.getLogger(__name__)

PER_PASS: Final = 8
"""Images that one pass proves, and that it deletes. The namespaces take turns."""
PASS_SECONDS: Final = 600.0
SOON_SECONDS: Final = 1.0
BACKOFF: Final = Backoff(30.0, 3600.0)
"""Between two attempts at one announcement."""
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _FailedAttempt:
    count: int
    next_try: float
    reason: str


class CapturesReconciler:
    """`publish` receives the verdicts on the captured caches of a namespace. One thread at a time for a namespace."""

    def __init__(
        self,
        observed: ObservedCaptures,
        images: CapturedImages,
        writer: CaptureWriter,
        registry: str,
        settings: CapturedCaches,
        *,
        publish: Callable[[str, RetentionPlan], None],
        now: Callable[[], datetime],
        clock: Clock = time.monotonic,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._observed = observed
        self._images = images
        self._writer = writer
        self._registry = registry
        self._settings = settings
        self._publish = publish
        self._now = now
        self._clock = clock
        self._backoff = backoff
        self._retention = Retention(settings, observed.named_by_user_cache)
        self._refusals: LRUCache[tuple[str, str, str], _FailedAttempt] = LRUCache(_REMEMBERED)

    def reconcile(self, namespace: str) -> float | None:
        """Do what is due for a namespace; return the seconds until the next pass, None for none.

        Raises:
            Retry, ApiError: a write has to be repeated.
        """
        now, cluster = self._now(), self._settings.are_for_cluster(namespace)
        announced, faults = merged(namespace, self._observed.announced(namespace), self._registry, now)
        for fault in faults:
            self._refuse(
                (namespace, fault.node, ""), fault.node, "an announcement", GKMError(fault.reason, fault.message)
            )
        registered = self._observed.registered(namespace)
        plan = self._retention.plan(announced, registered, now, cluster=cluster)
        self._publish(namespace, plan)
        for verdict in (*plan.retained, *plan.ended):
            self._writer.emit_registered(verdict.cache, now)
        due = [each for each in plan.register if self._is_due(each)]
        self._register(due[:PER_PASS], cluster=cluster)
        self._end(plan.ended[:PER_PASS], {each.image for each in plan.register})
        if len(due) > PER_PASS or len(plan.ended) > PER_PASS:
            return SOON_SECONDS
        return self._pause(announced, plan, now) if announced or registered else None

    def _register(self, due: list[Announcement], *, cluster: bool) -> None:
        """Register announced captures, the newest first; a later one of the same name waits for the next pass."""
        names: set[str] = set()
        for announced in due:
            if announced.name in names:
                continue
            key = (announced.namespace, announced.name, announced.image)
            try:
                self._check_name(announced, cluster=cluster)
                self._writer.register(self._proven(announced, cluster=cluster), cluster=cluster)
            except GKMError as error:
                self._refuse(key, announced.node, announced.name, error)
                continue
            names.add(announced.name)
            self._refusals.remove(key)
            _LOG.info("capture registered", extra=fields(namespace=announced.namespace, cache=announced.name))

    def _proven(self, announced: Announcement, *, cluster: bool) -> Announcement:
        """Return an announced capture as its signatures prove it: with the signed time, which decides from now on."""
        now = self._now()
        proven = replace(announced, time=self._images.prove(announced, now, cluster=cluster))
        registered = self._observed.registered(announced.namespace)
        if not self._retention.plan([proven], registered, now, cluster=cluster).register:
            message = (
                f"it is from {timestamp(proven.time)}, as its signers state: too old, or newer captures have caches"
            )
            raise GKMError(Reason.NOT_REQUIRED, message)
        return proven

    def _check_name(self, announced: Announcement, *, cluster: bool) -> None:
        """Refuse a name that an object has: a registered capture is not among those to register."""
        if self._observed.get(CacheKey("" if cluster else announced.namespace, announced.name)) is not None:
            raise GKMError(Reason.NOT_ALLOWED, "a user made a cache of this name")

    def _end(self, ended: Sequence[RetentionVerdict], wanted: Collection[str]) -> None:
        """End caches, with their images where no other cache names them; `wanted` images are about to be registered."""
        failure = ""
        for verdict in ended:
            is_unnamed = verdict.cache.image not in wanted and not self._observed.naming(verdict.cache)
            with_image = is_unnamed and verdict.reason is not RetentionReason.NOT_OFFERED
            try:
                self._writer.end(verdict, with_image=with_image)
            except (GKMError, ApiError) as error:
                failure = str(error)
                continue
            _LOG.info("captured cache ended", extra=fields(cache=str(verdict.cache.key), reason=verdict.reason.value))
        if failure:
            raise Retry(failure)

    def _is_due(self, announced: Announcement) -> bool:
        refusal = self._refusals.get((announced.namespace, announced.name, announced.image))
        return refusal is None or refusal.next_try <= self._clock()

    def _refuse(self, key: tuple[str, str, str], node: str, name: str, error: GKMError) -> None:
        before = self._refusals.get(key)
        if before is not None and before.next_try > self._clock():
            return
        count = before.count + 1 if before else 1
        self._refusals.put(key, _FailedAttempt(count, self._clock() + self._backoff.pause(count), error.reason.value))
        _LOG.warning(
            "capture not registered",
            extra=fields(namespace=key[0], node=node, capture=name, reason=error.reason.value, why=str(error)),
        )
        if before is None or before.reason != error.reason.value:
            self._writer.refused(self._observed.report_of(key[0], node), name, error)

    def _pause(self, announced: list[Announcement], plan: RetentionPlan, now: datetime) -> float:
        """Return the seconds until something can change without a change of an object."""
        waits = [PASS_SECONDS]
        for each in announced:
            refusal = self._refusals.get((each.namespace, each.name, each.image))
            if refusal is not None:
                waits.append(refusal.next_try - self._clock())
        if plan.next_change is not None:
            waits.append((plan.next_change - now).total_seconds())
        return max(SOON_SECONDS, min(waits))
