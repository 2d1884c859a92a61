"""The controller of GKMCache and ClusterGKMCache.

Reflectors watch caches, node reports, Nodes and agents. A change enqueues the cache's key in one of two queues: the
first resolves and verifies images, and may wait for registries; the second computes the status and writes it on change.
At most one worker of each queue handles a key at a time.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from threading import Event
from typing import Any, Literal

from gkm.api.caches import Cache
from gkm.api.meta import timestamp
from gkm.api.rollouts import LAST_RANK, RolloutStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller, StartedWatch
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, WATCHED_CACHES, WATCHED_CLUSTER_CACHES, Resource
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import rollout, status
from gkm_operator.caches.fleet import NodeWatcher
from gkm_operator.caches.status import ConditionValue
from gkm_operator.caches.throttling import EventBudget, StatusInterval
from gkm_operator.caches.totals import CacheKey, CacheSummary, key_of
from gkm_operator.caches.verification import BACKOFF, RecheckSchedule, VerificationQueue
from gkm_operator.delivery import ObservedDelivery
from gkm_operator.images import Images
from gkm_operator.pods import PODS, WatchedPod

_LOG = logging.getLogger(__name__)

FIELD_MANAGER = "gkm-operator"
STATUS_WORKERS = 2


class ImagePods:
    """Indexes pods by the references of their image volumes: no agent reports about these.

    `changed` is called with caches whose totals may have changed. Thread-safe.
    """

    def __init__(self, informers: Informers, changed: Callable[[CacheKey], None]) -> None:
        self._changed = changed
        self._pods: Index[str, WatchedPod] = Index(lambda pod: pod.image_volumes, lambda pod: pod.key)
        self._caches: Index[str, Cache] = Index(_references, key_of)
        self.watch = informers.select(PODS, self._pod_changed, wants=lambda pod: bool(pod.image_volumes))

    def cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        """Update the index after a change of a cache object: None before its creation and after its deletion."""
        self._caches.change(old, new)

    def summary(self, cache: Cache) -> CacheSummary:
        """Return the totals of a cache: the nodes with pods that have its verified image, and where such a pod runs."""
        namespace = cache.metadata.namespace
        found = [pod for reference in _references(cache) for pod in self._pods.get(reference)]
        pods = [pod for pod in found if pod.node and namespace in ("", pod.metadata.namespace)]
        running = [pod for pod in pods if pod.running]
        return CacheSummary(
            total=len({pod.node for pod in pods}), ready=len({pod.node for pod in running}), pods=len(running)
        )

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        self._pods.change(old, new)
        for reference in {name for pod in (old, new) if pod is not None for name in pod.image_volumes}:
            for cache in self._caches.get(reference):
                self._changed(key_of(cache))


def _references(cache: Cache) -> Iterable[str]:
    volume = cache.status.image_volume
    return () if volume is None else (volume.reference,)


class CachesController(Controller):
    """Verifies the images of caches, sums up the reports of nodes, and writes the status of caches.

    Level-triggered: all of its state can be lost at any time and is rebuilt by a list. `further` returns a condition to
    add to a cache; None leaves its status as it is.
    """

    def __init__(
        self,
        api: Api,
        images: Images,
        *,
        status_interval: StatusInterval | None = None,
        backoff: Backoff = BACKOFF,
        instance: str = "",
        namespace: str = DEFAULT_NAMESPACE,
        schedule: RecheckSchedule = RecheckSchedule(),  # noqa: B008 -- a frozen value
        informers: Informers | None = None,
        further: Callable[[Cache], Sequence[ConditionValue]] = lambda _cache: (),
        delivery: Literal["csi", "image", "auto"] = "csi",
    ) -> None:
        super().__init__("caches")
        self._api = api
        self._status_interval = status_interval or StatusInterval()
        self._further = further
        self._recorder = Recorder(api, "gkm.io/caches", instance or FIELD_MANAGER)
        self._event_budget = EventBudget()
        self._settling = rollout.Settling()
        self._stalls = rollout.Stalls()
        self._leads = False
        self._unreported: dict[CacheKey, str] = {}
        """Caches whose last write may lack its Events, if it is not older than this time."""
        self.status = WorkQueue(
            "status",
            self.write,
            workers=STATUS_WORKERS,
            group=lambda key: key.namespace,  # a namespace of thousands delays no other
            observe=metrics.reconcile_recorder("status"),
        )
        self.verification = VerificationQueue(images, self._get, self.status.add, backoff, schedule=schedule)
        shared = informers or Informers(api)
        self.node_watcher = NodeWatcher(api, self.refresh, namespace, informers=shared)
        self._delivery = ObservedDelivery(api, delivery, self._refresh_all)
        self._image_pods = ImagePods(shared, self.refresh)
        self._by_image: tuple[StartedWatch, ...] = ()
        if delivery != "csi":
            self._by_image = (self._image_pods.watch, *self._delivery.watches())
        self.queues = [*self.verification.queues, self.status]
        self._caches, self._cluster_caches = shared.of(WATCHED_CACHES), shared.of(WATCHED_CLUSTER_CACHES)
        for each in (self._caches, self._cluster_caches):
            each.subscribe(self._image_pods.cache_changed)
            each.subscribe(self._cache_changed)

    def reflectors(self) -> tuple[StartedWatch, ...]:
        """Return the watches that every replica starts, also while it does not lead."""
        return self._caches, self._cluster_caches, *self.node_watcher.reflectors, *self._by_image

    @property
    def synced(self) -> bool:
        """Return whether every watch has a complete list."""
        return self.watches.synced

    def watch(self, stop: Event) -> bool:
        """Start the watches and wait for complete lists, because totals over partial lists would be wrong.

        Return True then. Returns False when `stop` was set before.
        """
        self.watches.start(*self.reflectors())
        while not self.synced and not stop.wait(0.1):
            pass
        if not self.synced:
            return False
        _LOG.info(
            "lists of caches complete",
            extra=fields(caches=len(self._caches.values()) + len(self._cluster_caches.values())),
        )
        return True

    def run(self) -> None:
        """Start to verify images and to write the status of caches; call `watch` before.

        Schedules the rechecks here: for a replica that waited for days as a follower, all of them would be due at once.
        """
        now = datetime.fromisoformat(timestamp())
        # Before the caches are read: an earlier change applies to all of them, and a later one enqueues its cache. A
        # follower does not enqueue: each of 10,000 reports in a list is a change of 20 caches.
        self._leads = True
        caches: list[Cache] = [*self._caches.values(), *self._cluster_caches.values()]
        for cache in caches:
            key = key_of(cache)
            self.verification.changed(key, None, cache)
            written = cache.status.last_updated
            if written and any(status.missed_events(cache, now)):
                self._unreported[key] = written
            self.status.add(key)
        self.verification.begin()
        self.start_queues()

    def write(self, key: CacheKey) -> float | None:
        """Write the status of a cache if it is out of date.

        Return the seconds until the next run, None if none is needed.

        Raises:
            ApiError: the API server refused the write, or the object has changed since it was read.
        """
        cache = self._get(key)
        if cache is None:
            return None
        self._emit_missed(key, cache)
        outcome = self.verification.outcome(cache)
        digest = status.resolved_digest(cache, outcome)
        delivery = self._delivery.kind or "csi"  # known: no write comes before the first list
        by_image = delivery == "image"
        summary = self._image_pods.summary(cache) if by_image else self.node_watcher.fleet.summary(key, digest)
        opened, pause = self._rollout(key, cache, digest, summary.total)
        now = timestamp()
        new = status.desired_status(
            cache, outcome, summary, now, rollout=opened, further=self._further(cache), delivery=delivery
        )
        if new is None or new == cache.status:
            self._unreported.pop(key, None)
            return pause
        try:
            self._api.apply(
                _resource(key),
                status.apply_configuration(cache, new),
                field_manager=FIELD_MANAGER,
                subresource="status",
            )
        except ApiError as error:
            if error.not_found:
                return None
            if not error.conflict:
                # The write may have succeeded: the response was lost, or etcd was slow. The object will show it.
                self._unreported.setdefault(key, now)
            raise
        self._unreported.pop(key, None)
        self._status_interval.wrote(key)
        self._emit(cache, status.events_of(cache.status, new), new.last_updated or "")
        return pause

    def _rollout(
        self, key: CacheKey, cache: Cache, digest: str | None, nodes: int
    ) -> tuple[RolloutStatus | None, float | None]:
        """Return the rollout of a digest, and the seconds until it must be computed again."""
        present = cache.status.rollout
        if cache.spec.rollout is None or digest is None:
            return None, None
        rank = rollout.open_rank(cache, digest)
        if not nodes or rank == LAST_RANK:
            return present, None  # the first report adds the key again
        if not rank:
            remaining = self._settling.remaining(key, digest, nodes)
            if remaining > 0:
                return present, remaining
        unfinished = self.node_watcher.fleet.unfinished(key, digest)
        remaining = self._stalls.remaining(key, digest, rank)
        new = rollout.opened(cache, digest, unfinished, is_stalled=remaining == 0)
        return new, remaining or rollout.STALL_SECONDS

    def _emit_missed(self, key: CacheKey, cache: Cache) -> None:
        written, since = cache.status.last_updated, self._unreported.get(key)
        if written is not None and since is not None and written >= since:
            self._emit(cache, status.missed_events(cache, datetime.fromisoformat(written)), written)

    def _emit(self, cache: Cache, bodies: Iterable[EventBody], written: str) -> None:
        """Emit the Events for a write of the status at this time."""
        for body in bodies:
            if self._event_budget.spend(cache.metadata.uid):
                self._recorder.emit(status.regarding(cache), body, written)

    def _get(self, key: CacheKey) -> Cache | None:
        reflector = self._caches if key.namespace else self._cluster_caches
        return reflector.get(key.name, key.namespace)

    def _cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        cache = new or old
        assert cache is not None  # noqa: S101 -- a reflector passes at least one of them
        key = key_of(cache)
        _count(old, new)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self.verification.remove(key, old)
            self.status.forget(key)
            self._unreported.pop(key, None)
            old = None
        if new is None:
            return
        if self._leads:
            self.verification.changed(key, old, new)
        self.refresh(key)

    def _refresh_all(self) -> None:
        """Compute every status again: pods get their caches in another way now."""
        for watch in (self._caches, self._cluster_caches):
            for cache in watch.values():
                self.refresh(key_of(cache))

    def refresh(self, key: CacheKey) -> None:
        """Schedule a write of the status of a cache, because something that it states may have changed."""
        if self._leads:
            self.status.add(key, self._status_interval.after(key))


def _count(old: Cache | None, new: Cache | None) -> None:
    """Count a cache by the reason of its condition Ready."""
    for cache, change in ((old, -1), (new, 1)):
        if cache is not None:
            ready = cache.status.condition("Ready")
            metrics.CACHES.labels(ready.reason if ready else "none").inc(change)


def _resource(key: CacheKey) -> Resource[Any]:
    return GKMCACHES if key.namespace else CLUSTERGKMCACHES
