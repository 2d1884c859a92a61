"""The controller of GKMCache and ClusterGKMCache: watches, two queues, and one write when something changed."""

import logging
from collections.abc import Callable
from threading import Event
from typing import Any

from gkm.api.caches import Cache
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.backoff import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.caches import status, telling
from gkm_operator.caches.contributions import CLUSTER_NODES, NODES, Node, of_node
from gkm_operator.caches.outcome import Outcome, look
from gkm_operator.caches.tally import CacheKey, Fleet
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)

FIELD_MANAGER = "gkm-operator"
DEBOUNCE_SECONDS = 1.0
"""A status is written about once a second: a write costs the API server some 17 ms of CPU (design/runtime.md)."""

VERIFY_BACKOFF = Backoff(2.0, 300.0)
VERIFY_WORKERS = 8
VERIFY_PER_NAMESPACE = 2
"""A silent registry holds a worker for half a minute: one tenant's must not hold them all (decisions/0006)."""
STATUS_WORKERS = 2


class CachesController:
    """Resolves and verifies what caches name, sums up what nodes report, and writes status on change.

    Level-triggered: everything it knows can be lost at any instant and is found again by a list. `verify` is the
    queue that may wait for registries, `status` the one that writes; a key is in one worker of each at most.
    """

    def __init__(
        self,
        api: Api,
        images: Images,
        *,
        debounce: float = DEBOUNCE_SECONDS,
        backoff: Backoff = VERIFY_BACKOFF,
        instance: str = "",
        now: Callable[[], str] = timestamp,
    ) -> None:
        self._api = api
        self._images = images
        self._debounce = debounce
        self._now = now
        self._recorder = Recorder(api, "gkm.io/caches", instance or FIELD_MANAGER)
        self._fleet = Fleet()
        # By uid: an object that was deleted and made again under its old name starts anew.
        self._outcomes: dict[str, Outcome] = {}
        self._verify = WorkQueue(
            "verify",
            self.verify,
            workers=VERIFY_WORKERS,
            backoff=backoff,
            group=lambda key: key.namespace,
            per_group=VERIFY_PER_NAMESPACE,
            observe=metrics.reconciled("verify"),
        )
        self._status = WorkQueue("status", self.write, workers=STATUS_WORKERS, observe=metrics.reconciled("status"))
        for controller, queue in (("verify", self._verify), ("status", self._status)):
            metrics.QUEUE_DEPTH.labels(controller).set_function(queue.__len__)
        self._caches = Reflector(api, GKMCACHES, self._cache_changed)
        self._cluster_caches = Reflector(api, CLUSTERGKMCACHES, self._cache_changed)
        self._nodes = Reflector(api, NODES, self._node_changed)
        self._cluster_nodes = Reflector(api, CLUSTER_NODES, self._node_changed)
        self._reflectors: tuple[Reflector[Any], ...] = (
            self._caches,
            self._cluster_caches,
            self._nodes,
            self._cluster_nodes,
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
        """Begin to look at images and to write status; what changed while nobody worked waits in the queues."""
        self._verify.start()
        self._status.start()

    def close(self) -> None:
        """End within a few seconds; a check that waits for a registry is left to its daemon thread."""
        for reflector in self._reflectors:
            reflector.close(1.0)
        self._verify.close(1.0)
        self._status.close(3.0)

    def verify(self, key: CacheKey) -> None:
        """Find out about the image of a cache.

        Raises:
            Retry: the answer may change with time.
        """
        cache = self._get(key)
        if cache is None or cache.metadata.deletion_timestamp:
            return
        uid = cache.metadata.uid
        known = self._outcomes.get(uid)
        if known is not None and known.image == cache.spec.image and known.settled:
            return
        outcome = look(self._images, cache, status.resolved(cache, known))
        _LOG.info(
            "looked at image",
            extra=fields(
                cache=str(key),
                image=outcome.image,
                digest=outcome.digest,
                verified=outcome.status,
                reason=outcome.reason,
            ),
        )
        self._outcomes[uid] = outcome
        present = self._get(key)
        if present is None or present.metadata.uid != uid:
            self._outcomes.pop(uid, None)  # deleted meanwhile, perhaps before the line above
            return
        self._status.add(key)
        if not outcome.settled:
            raise Retry(f"{outcome.reason}: {outcome.message}")

    def write(self, key: CacheKey) -> None:
        """Make the status of a cache what it should be."""
        cache = self._get(key)
        if cache is None:
            return
        outcome = self._outcomes.get(cache.metadata.uid)
        summary = self._fleet.summary(key, status.resolved(cache, outcome))
        new = status.wanted(cache, outcome, summary, self._now())
        if new is None or new == cache.status:
            return
        try:
            self._api.apply(
                _resource(key), status.applied(cache, new), field_manager=FIELD_MANAGER, subresource="status"
            )
        except ApiError as error:
            if not error.not_found:
                raise
            return
        told = telling.told(cache.status.condition("Verified"), new.condition("Verified"))
        if told is not None:
            self._recorder.tell(telling.regarding(cache), told)

    def _get(self, key: CacheKey) -> Cache | None:
        reflector = self._caches if key.namespace else self._cluster_caches
        return reflector.get(key.name, key.namespace)

    def _cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        cache = new or old
        assert cache is not None  # noqa: S101 -- a reflector hands on at least one of them
        key = CacheKey(cache.metadata.namespace, cache.metadata.name)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._outcomes.pop(old.metadata.uid, None)
            self._verify.forget(key)
            self._status.forget(key)
            old = None
        if new is None:
            return
        if old is None or _asked(old) != _asked(new):
            self._verify.add(key)
        self._status.add(key, self._debounce)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None  # noqa: S101 -- a reflector hands on at least one of them
        namespace, name = node.metadata.namespace, node.metadata.name
        for key in self._fleet.change(namespace, name, of_node(old), of_node(new)):
            self._status.add(key, self._debounce)


def _asked(cache: Cache) -> tuple[object, ...]:
    """Return what of a cache the registry is asked about, and as whom."""
    return cache.spec.image, cache.spec.image_pull_secrets


def _resource(key: CacheKey) -> Resource[Any]:
    return GKMCACHES if key.namespace else CLUSTERGKMCACHES
