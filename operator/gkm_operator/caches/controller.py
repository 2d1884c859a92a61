"""The controller of GKMCache and ClusterGKMCache: watches, two queues, and one write when something changed."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Event
from typing import Any

from gkm.api.caches import Cache
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Reporter
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import events as telling
from gkm_operator.caches import status
from gkm_operator.caches.nodes.liveness import NODES, WatchedNode
from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.caches.nodes.watcher import NodeWatcher, SeeNode, ignore_node
from gkm_operator.caches.throttling.event_budget import EventBudget
from gkm_operator.caches.throttling.status_interval import StatusInterval
from gkm_operator.caches.verification import queue as verification
from gkm_operator.caches.verification.queue import VerificationQueue
from gkm_operator.caches.verification.recheck import RecheckSchedule
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)

FIELD_MANAGER = "gkm-operator"
STATUS_WORKERS = 2


class CachesController:
    """Resolves and verifies what caches name, sums up what nodes report, and writes status on change.

    Level-triggered: everything it knows can be lost at any instant and is found again by a list. `verification` may
    wait for registries, `status` is the queue that writes; a key is in one worker of each at most. `nodes` are as
    Aggregation takes them.
    """

    def __init__(
        self,
        api: Api,
        images: Images,
        *,
        spacing: StatusInterval | None = None,
        backoff: Backoff = verification.BACKOFF,
        instance: str = "",
        namespace: str = DEFAULT_NAMESPACE,
        again: RecheckSchedule = RecheckSchedule(),  # noqa: B008 -- a frozen value
        now: Callable[[], str] = timestamp,
        nodes: tuple[Resource[WatchedNode], SeeNode] = (NODES, ignore_node),
    ) -> None:
        self._api = api
        self._spacing = spacing or StatusInterval()
        self._now = now
        self._recorder = Recorder(api, Reporter("gkm.io/caches", instance or FIELD_MANAGER))
        self._allowance = EventBudget()
        self._works = False
        self._untold: dict[CacheKey, str] = {}
        """Of which caches nobody may have been told of the last write, if it is not older than this."""
        self.status = WorkQueue(
            "status",
            self.write,
            workers=STATUS_WORKERS,
            group=lambda key: key.namespace,  # they take turns: a namespace of thousands holds up no other
            observe=metrics.reconcile_recorder("status"),
        )
        self.verification = VerificationQueue(images, self._get, self.status.add, backoff, again=again)
        self.aggregation = NodeWatcher(
            api, lambda key: self.status.add(key, self._spacing.after(key)), namespace, nodes=nodes[0], see=nodes[1]
        )
        for name, queue in (("verify", self.verification.queue), ("status", self.status)):
            metrics.QUEUE_DEPTH.labels(name).set_function(queue.__len__)
        self._caches = Reflector(api, GKMCACHES, self._cache_changed)
        self._cluster_caches = Reflector(api, CLUSTERGKMCACHES, self._cache_changed)
        self._reflectors: tuple[Reflector[Any], ...] = (
            self._caches,
            self._cluster_caches,
            *self.aggregation.reflectors,
        )

    @property
    def synced(self) -> bool:
        """Return whether everything has been listed once."""
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    def watch(self, stop: Event) -> bool:
        """Watch, and return when everything has been listed: sums of half a list would be written else.

        Returns False when `stop` was set before.
        """
        for reflector in self._reflectors:
            reflector.start()
        while not self.synced and not stop.wait(0.1):
            pass
        if not self.synced:
            return False
        _LOG.info("synced", extra=fields(caches=len(self._caches.values()) + len(self._cluster_caches.values())))
        return True

    def work(self) -> None:
        """Begin to look at images and to write status. Returns at once, whatever the API server does.

        Places for the looks are given out here: those of a replica that waited for days would all be due at once.
        """
        now = datetime.fromisoformat(self._now())
        # Before the caches are read: one that comes meanwhile is in them, or is told of by its watch, or both.
        self._works = True
        caches: list[Cache] = [*self._caches.values(), *self._cluster_caches.values()]
        for cache in caches:
            key = _key(cache)
            self.verification.changed(key, None, cache)
            written = cache.status.last_updated
            if written and any(telling.missed_events(cache, now)):
                self._untold[key] = written
                self.status.add(key)
        self.verification.start()
        self.status.start()

    def close(self) -> None:
        """End within a few seconds; a check that waits for a registry is left to its daemon thread."""
        # Who writes ends first: the lease may be another's already.
        self.status.close(3.0)
        self.verification.close(1.0)
        for reflector in self._reflectors:
            reflector.close(1.0)

    def write(self, key: CacheKey) -> None:
        """Make the status of a cache what it should be.

        Raises:
            Retry: the object is not any more what this was made from.
            ApiError: the API server did not take it.
        """
        cache = self._get(key)
        if cache is None:
            return
        self._emit_missed(key, cache)
        outcome = self.verification.outcome(cache)
        summary = self.aggregation.summary(key, status.resolved_digest(cache, outcome))
        now = self._now()
        new = status.desired_status(cache, outcome, summary, now)
        if new is None or new == cache.status:
            self._untold.pop(key, None)
            return
        try:
            self._api.apply(
                _resource(key),
                status.apply_configuration(cache, new),
                field_manager=FIELD_MANAGER,
                subresource="status",
            )
        except ApiError as error:
            if error.not_found:
                return
            if error.conflict:
                # Made from an older object: the watch brings the newer one, if it has not by now.
                raise Retry(str(error)) from error
            # It may be written all the same: an answer was lost, or etcd was slow. The object will show it.
            self._untold.setdefault(key, now)
            raise
        self._untold.pop(key, None)
        self._spacing.wrote(key)
        self._emit(cache, telling.events_of(cache.status, new), new.last_updated or "")

    def _emit_missed(self, key: CacheKey, cache: Cache) -> None:
        written, since = cache.status.last_updated, self._untold.get(key)
        if written is not None and since is not None and written >= since:
            self._emit(cache, telling.missed_events(cache, datetime.fromisoformat(written)), written)

    def _emit(self, cache: Cache, news: Iterable[EventBody], written: str) -> None:
        """Tell what a write of the status at this time has changed."""
        for told in news:
            if self._allowance.spend(cache.metadata.uid):
                self._recorder.emit(telling.regarding(cache), told, written)

    def _get(self, key: CacheKey) -> Cache | None:
        reflector = self._caches if key.namespace else self._cluster_caches
        return reflector.get(key.name, key.namespace)

    def _cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        cache = new or old
        assert cache is not None  # noqa: S101 -- a reflector hands on at least one of them
        key = _key(cache)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self.verification.remove(key, old)
            self.status.forget(key)
            self._untold.pop(key, None)
            old = None
        if new is None:
            return
        if self._works:
            self.verification.changed(key, old, new)
        self.status.add(key, self._spacing.after(key))


def _key(cache: Cache) -> CacheKey:
    return CacheKey(cache.metadata.namespace, cache.metadata.name)


def _resource(key: CacheKey) -> Resource[Any]:
    return GKMCACHES if key.namespace else CLUSTERGKMCACHES
