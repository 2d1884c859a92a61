"""The controller of captures: makes caches of what nodes announce, in a queue of namespaces (docs/design/capture.md).

It starts no watch: the controller of caches does, which every replica runs.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock

from gkm.api.caches import Cache
from gkm.api.config import Config
from gkm.api.errors import Reason
from gkm.api.meta import FALSE, TRUE
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.resources import WATCHED_CACHES, WATCHED_CLUSTER_CACHES
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.caches.node_reports import CLUSTER_REPORTS, REPORTS
from gkm_operator.caches.status import ConditionValue
from gkm_operator.caches.totals import CacheKey
from gkm_operator.captures.objects import captured_cache
from gkm_operator.captures.observed import ObservedCaptures
from gkm_operator.captures.reconciler import BACKOFF, CapturesReconciler, Prove
from gkm_operator.captures.retention import ENDS, RetentionPlan, RetentionReason
from gkm_operator.captures.trials import FailedPods, Trials
from gkm_operator.captures.writer import FIELD_MANAGER, CaptureWriter

Refresh = Callable[[CacheKey], None]
RETAINED = "Retained"
REFUSALS = (Reason.METADATA_INVALID, Reason.NOT_ALLOWED, Reason.SIGNATURE_MISSING)
"""Reasons of refused captures whose counters exist from 0 on; other counters begin with their first refusal."""
SETTLE_SECONDS = 1.0
"""Seconds between a change and the next pass: nodes announce several captures in a moment."""


class CapturesController(Controller):
    """Makes caches from captures (images made from pods' compiled kernels). Without `capture.registry` it does nothing.

    One worker: a statement about files has up to 16 MiB.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        prove: Prove,
        *,
        instance: str = "",
        informers: Informers | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Clock = time.monotonic,
        backoff: Backoff = BACKOFF,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        super().__init__("captures", enabled=bool(config.capture.registry))
        self._registry = config.capture.registry
        self._settle = settle
        self.refresh: Refresh = lambda _key: None
        """Makes the condition of a cache be written."""
        self._working = False
        self._judged: dict[str, dict[CacheKey, tuple[str, ConditionValue]]] = {}
        """By namespace: the uid of each captured cache, and its condition."""
        self._held_back: Counter[str] = Counter()
        """By namespace: how many generations are held back."""
        self._lock = Lock()
        self.observed = ObservedCaptures(self._registry, self._enqueue)
        if self.enabled:
            shared = informers or Informers(api)
            for caches in (shared.of(WATCHED_CACHES), shared.of(WATCHED_CLUSTER_CACHES)):
                caches.subscribe(self.observed.cache_changed)
            for reports in (shared.of(REPORTS), shared.of(CLUSTER_REPORTS)):
                reports.subscribe(self.observed.report_changed)
        recorder = Recorder(api, "gkm.io/captures", instance or FIELD_MANAGER)
        writer = CaptureWriter(api, recorder, self._registry)
        self._trials = Trials(FailedPods(api), clock, lambda key: self.refresh(key))  # noqa: PLW0108 -- set later
        self.reconciler = CapturesReconciler(
            self.observed,
            prove,
            writer,
            self._registry,
            config.capture.caches,
            publish=self._publish,
            trials=self._trials,
            now=now,
            clock=clock,
            backoff=backoff,
        )
        self.queue: WorkQueue[str] = WorkQueue(
            self.name, self.reconciler.reconcile, workers=1, observe=metrics.reconcile_recorder(self.name)
        )
        self.queues = [self.queue]

    def run(self) -> None:
        """Start the queue that makes caches from captures, in the controller's thread."""
        metrics.expect_captures(RetentionReason, ENDS, REFUSALS)
        # Before the namespaces are read: a change that arrives meanwhile enqueues its own.
        self._working = True
        for namespace in self.observed.namespaces():
            self.queue.add(namespace)
        self.start_queues()

    def conditions(self, cache: Cache) -> Sequence[ConditionValue]:
        """Return the conditions Retained and HeldBack of a captured cache; () for other caches or before a verdict."""
        found = captured_cache(cache, self._registry) if self._registry else None
        if found is None:
            return ()
        with self._lock:
            uid, retained = self._judged.get(found.namespace, {}).get(found.key, ("", None))
        held_back = self._trials.condition(found)
        return [each for each in (retained if uid == found.uid else None, held_back) if each is not None]

    def _publish(self, namespace: str, plan: RetentionPlan) -> None:
        """Let the conditions of the captured caches of a namespace be written where they have changed."""
        new = {
            verdict.cache.key: (verdict.cache.uid, ConditionValue(RETAINED, status, verdict.reason, verdict.message))
            for status, verdicts in ((TRUE, plan.retained), (FALSE, plan.ended))
            for verdict in verdicts
        }
        with self._lock:
            old = self._judged.pop(namespace, {})
            self._held_back.pop(namespace, None)
            if new:
                self._judged[namespace] = new
                self._held_back[namespace] = sum(self._trials.is_held(each.cache) for each in plan.retained)
            metrics.GENERATIONS_HELD_BACK.set(self._held_back.total())
            counts = Counter(value.reason for judged in self._judged.values() for _, value in judged.values())
        for reason in RetentionReason:
            metrics.CAPTURED_CACHES_RETAINED.labels(reason.value).set(counts[reason.value])
        for key, value in new.items():
            if old.get(key) != value:
                self.refresh(key)

    def _enqueue(self, namespace: str) -> None:
        if self._working:
            self.queue.add(namespace, self._settle)
