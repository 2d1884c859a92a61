"""One pass over the captures of a namespace: register, report, end."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.workqueue import Retry

from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.captures.announcements import Announcement, merged
from gkm_operator.captures.attempts import AttemptKey, Attempts, key_of
from gkm_operator.captures.ending import CaptureEnder
from gkm_operator.captures.images import CapturedImages
from gkm_operator.captures.observed import ObservedCaptures
from gkm_operator.captures.retention import Retention, RetentionPlan
from gkm_operator.captures.writer import CaptureWriter

_LOG = logging.getLogger(__name__)

PER_PASS: Final = 8
"""Images that one pass proves. The namespaces take turns."""
PASS_SECONDS: Final = 600.0
SOON_SECONDS: Final = 1.0
BACKOFF: Final = Backoff(30.0, 3600.0)
"""Between two attempts at one announcement."""
REGISTER_SECONDS: Final = 60.0
"""After this time a pass begins no further proof."""


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
        self._retention = Retention(settings, observed.named_by_user_cache)
        self._ender = CaptureEnder(observed, writer, clock=clock, backoff=backoff)
        self._attempts = Attempts(clock, backoff)

    def reconcile(self, namespace: str) -> float | None:
        """Do what is due for a namespace; return the seconds until the next pass, None for none.

        Raises:
            Retry, ApiError: a write has to be repeated.
        """
        now, cluster = self._now(), self._settings.are_for_cluster(namespace)
        announced, faults = merged(namespace, self._observed.announced(namespace), self._registry, now)
        self._attempts.retain_only(namespace, [*map(key_of, announced), *(AttemptKey(fault.node) for fault in faults)])
        for fault in faults:
            if self._attempts.next_try(namespace, AttemptKey(fault.node)) <= self._clock():
                error = GKMError(fault.reason, fault.message)
                self._refuse(namespace, AttemptKey(fault.node), fault.node, "an announcement", error)
        registered = self._observed.registered(namespace)
        plan = self._retention.plan(announced, registered, now, cluster=cluster)
        self._publish(namespace, plan)
        for verdict in (*plan.retained, *plan.ended):
            self._writer.emit_registered(verdict.cache, now)
        # Before the proofs, which take minutes: the decision is of now.
        ended = self._ender.end(namespace, plan.ended)
        due = self._attempts.due(plan.register)
        done = self._register(due[:PER_PASS], cluster=cluster)
        if ended.changed:
            raise Retry(ended.changed)
        if len(due) > done:
            return SOON_SECONDS
        return min(ended.pause, self._pause(plan, now)) if announced or registered else None

    def _register(self, due: Sequence[tuple[str, Announcement]], *, cluster: bool) -> int:
        """Register announced captures, each on account of a node; return how many of them were tried in the time.

        A later one of the same name waits for the next pass.
        """
        names: set[str] = set()
        end = self._clock() + REGISTER_SECONDS
        for number, (node, announced) in enumerate(due):
            if self._clock() >= end:
                return number
            if announced.name in names or self._attempts.is_paused(node):
                continue
            namespace, key = announced.namespace, key_of(announced)
            self._attempts.begin(node)
            try:
                self._check_name(announced, cluster=cluster)
                self._writer.register(self._proven(node, announced, cluster=cluster), cluster=cluster)
            except GKMError as error:
                self._refuse(namespace, key, node, announced.name, error)
                continue
            names.add(announced.name)
            self._attempts.succeeded(namespace, key)
            _LOG.info("capture registered", extra=fields(namespace=namespace, cache=announced.name))
        return len(due)

    def _proven(self, node: str, announced: Announcement, *, cluster: bool) -> Announcement:
        """Return an announced capture as its signatures prove it: with the signed time, which decides from now on."""
        now = self._now()
        try:
            proven = replace(announced, time=self._images.prove(announced, now, cluster=cluster))
        except GKMError:
            # Only this: a user of the namespace, who has no part in what the node announces, can cause the others.
            self._attempts.charge(node)
            raise
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

    def _refuse(self, namespace: str, key: AttemptKey, node: str, name: str, error: GKMError) -> None:
        is_new = self._attempts.failed(namespace, key, error)
        _LOG.warning(
            "capture not registered",
            extra=fields(namespace=namespace, node=node, capture=name, reason=error.reason.value, why=str(error)),
        )
        if is_new:
            self._writer.refused(self._observed.report_of(namespace, node), name, error)

    def _pause(self, plan: RetentionPlan, now: datetime) -> float:
        """Return the seconds until something can change without a change of an object."""
        waits = [PASS_SECONDS]
        for each in plan.register:
            wait = self._attempts.wait(each)
            if wait > 0:
                waits.append(wait)
        if plan.next_change is not None:
            waits.append((plan.next_change - now).total_seconds())
        return max(SOON_SECONDS, min(waits))
