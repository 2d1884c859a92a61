"""The controller of KernelCaches: a queue of their names. Runs in the leader only.

A pass reads the KernelCache and its GKMCache anew, so watches only say when to reconcile.
"""

import logging
from typing import Any, NamedTuple

from gkm.api.caches import Cache, GKMCache
from gkm.api.features import Feature, install
from gkm.api.kernel_caches import API_VERSION as KSERVE_API_VERSION
from gkm.api.kernel_caches import KERNEL_CACHE, KernelCache, KernelCacheNodeGroup, KServe, WatchedKernelCache
from gkm.api.meta import timestamp
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Key
from gkm.kube.controller import Controller, StartedWatch
from gkm.kube.errors import ApiError
from gkm.kube.informers import Informers
from gkm.kube.resources import (
    GKMCACHES,
    KERNEL_CACHE_NODE_GROUPS,
    KERNEL_CACHES,
    WATCHED_CACHES,
    WATCHED_KERNEL_CACHES,
    Resource,
)
from gkm.kube.workqueue import Retry, WorkQueue
from msgspec import structs, to_builtins

from gkm_operator import metrics
from gkm_operator.kserve.translation import (
    Obstacle,
    Obstructed,
    cache_object,
    is_of_kernel_cache,
    is_owned,
    kernel_cache_status,
    own_conditions,
    selector_patch,
)

_LOG = logging.getLogger(__name__)
NAME = "kserve"
FIELD_MANAGER = "gkm-kserve"
WORKERS = 2
CALM_SECONDS = 1.0
"""Seconds between a change and the next pass: the nodes of a cache report one after another."""
BACKOFF = Backoff(0.5, 60.0)


class Realized(NamedTuple):
    """The GKMCache made from a KernelCache, None if there is none, and the obstacle that prevents it."""

    cache: GKMCache | None
    obstructed: Obstructed | None = None


class KServeController(Controller):
    """Makes GKMCaches from KernelCaches; runs if `kserve.enabled`."""

    def __init__(self, api: Api, settings: KServe, *, informers: Informers, calm: float = CALM_SECONDS) -> None:
        super().__init__(NAME, enabled=settings.enabled)
        self._api = api
        self._writes_status = settings.write_status
        self._calm = calm
        self._kernel_caches = informers.of(WATCHED_KERNEL_CACHES)
        self._groups = informers.of(KERNEL_CACHE_NODE_GROUPS)
        self._caches = informers.of(WATCHED_CACHES)
        observe = metrics.reconcile_recorder(NAME)
        self.queue: WorkQueue[Key] = WorkQueue(
            NAME, self.reconcile, workers=WORKERS, backoff=BACKOFF, group=lambda key: key[0], observe=observe
        )
        self.queues = [self.queue]
        if self.enabled:
            self._kernel_caches.subscribe(self._kernel_cache_changed)
            self._groups.subscribe(self._group_changed)
            self._caches.subscribe(self._cache_changed)

    def reflectors(self) -> tuple[StartedWatch, ...]:
        """Return the watches that tell when to reconcile: KernelCaches, their node groups, and GKMCaches."""
        return self._kernel_caches, self._groups, self._caches

    def reconcile(self, key: Key) -> None:
        """Create or update the GKMCache of a KernelCache, and write the KernelCache's status.

        Raises:
            Retry: the API server refuses a write.
            ApiError: an object has changed since it was read, or the API server does not answer.
        """
        found = self._api.find(KERNEL_CACHES, key[1], key[0])
        if found is None or found.metadata.deletion_timestamp:
            return
        group = self._groups.get(found.spec.node_group_ref.name)
        realized = self._realize(found, group)
        if self._writes_status:
            self._report(found, group, realized)
        if realized.obstructed is not None and realized.obstructed.reason is Obstacle.CACHE_REFUSED:
            raise Retry(realized.obstructed.message)

    def _realize(self, found: KernelCache, group: KernelCacheNodeGroup | None) -> Realized:
        name, namespace = found.metadata.name, found.metadata.namespace
        cache = self._api.find(GKMCACHES, name, namespace)
        if cache is not None and not is_owned(cache, found.metadata):
            if is_of_kernel_cache(cache):
                raise Retry(f"GKMCache {namespace}/{name} is of an earlier KernelCache, and is deleted with it")
            return Realized(None, _obstructed(Obstacle.NAME_TAKEN, found))
        if group is None:
            return Realized(cache, _obstructed(Obstacle.NODE_GROUP_MISSING, found))
        try:
            return self._created(found, group) if cache is None else self._followed(cache, found, group)
        except ApiError as error:
            if not error.refused:
                raise
            hint = f"; {install(Feature.KSERVE)}" if "cannot patch resource" in error.message else ""
            why = f"the API server refuses the GKMCache: {error.message}{hint}"
            return Realized(cache, Obstructed(Obstacle.CACHE_REFUSED, why))

    def _created(self, found: KernelCache, group: KernelCacheNodeGroup) -> Realized:
        made = self._api.create(GKMCACHES, cache_object(found, group), field_manager=FIELD_MANAGER)
        _LOG.info(
            "GKMCache created for a KServe cache",
            extra=fields(cache=f"{found.metadata.namespace}/{found.metadata.name}"),
        )
        return Realized(made)

    def _followed(self, cache: GKMCache, found: KernelCache, group: KernelCacheNodeGroup) -> Realized:
        if cache.spec.image != found.spec.artifact.image_reference:
            return Realized(None, _obstructed(Obstacle.CACHE_CHANGED, found))
        patch = selector_patch(cache, group)
        if patch is not None:
            cache = self._api.merge(GKMCACHES, cache.metadata.name, patch, cache.metadata.namespace)
        return Realized(cache)

    def _report(self, found: KernelCache, group: KernelCacheNodeGroup | None, realized: Realized) -> None:
        new = kernel_cache_status(found, group, realized.cache, realized.obstructed, timestamp())
        if new == structs.replace(found.status, conditions=own_conditions(found)):
            return
        written = {
            "apiVersion": KSERVE_API_VERSION,
            "kind": KERNEL_CACHE,
            "metadata": {"name": found.metadata.name, "namespace": found.metadata.namespace},
            "status": to_builtins(new),
        }
        untyped: Resource[Any] = KERNEL_CACHES.of(dict[str, Any])
        try:
            self._api.apply(untyped, written, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            if not error.not_found:
                raise

    def _kernel_cache_changed(self, _old: WatchedKernelCache | None, new: WatchedKernelCache | None) -> None:
        if new is not None:
            self.queue.add((new.metadata.namespace, new.metadata.name), self._calm)

    def _cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        cache = new or old
        assert cache is not None  # noqa: S101 -- a reflector passes at least one of them
        metadata = cache.metadata
        if self._kernel_caches.get(metadata.name, metadata.namespace) is not None:
            self.queue.add((metadata.namespace, metadata.name), self._calm)

    def _group_changed(self, _old: KernelCacheNodeGroup | None, _new: KernelCacheNodeGroup | None) -> None:
        for each in self._kernel_caches.values():
            self.queue.add((each.metadata.namespace, each.metadata.name), self._calm)


def _obstructed(reason: Obstacle, found: KernelCache) -> Obstructed:
    where, name = f"-n {found.metadata.namespace}", found.metadata.name
    group = found.spec.node_group_ref.name
    messages = {
        Obstacle.NAME_TAKEN: f"a GKMCache {name} exists that was not made of this KernelCache, and stays as it is: "
        f"rename either, or kubectl delete gkmcache {name} {where}",
        Obstacle.CACHE_CHANGED: f"the image of the GKMCache {name} was changed: kubectl delete gkmcache {name} {where} "
        "makes it anew",
        Obstacle.NODE_GROUP_MISSING: f"KernelCacheNodeGroup {group} does not exist: create it"
        if group
        else "spec.nodeGroupRef names no KernelCacheNodeGroup: name one",
    }
    return Obstructed(reason, messages[reason])
