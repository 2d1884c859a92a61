"""The pods that mount caches as image volumes, and the totals of a cache over their nodes, where no agent reports."""

from collections.abc import Callable, Iterable

from gkm.api.caches import Cache
from gkm.kube.index import Index
from gkm.kube.informers import Informers

from gkm_operator.caches.totals import CacheKey, CacheSummary, key_of
from gkm_operator.pods import PODS, WatchedPod


class ImagePods:
    """Indexes pods by the references of their image volumes.

    `changed` is called with caches whose totals may have changed. Thread-safe.
    """

    def __init__(self, informers: Informers, changed: Callable[[CacheKey], None]) -> None:
        self._changed = changed
        self._pods: Index[str, WatchedPod] = Index(lambda pod: pod.image_volumes, lambda pod: pod.key)
        self._caches: Index[str, Cache] = Index(_references, key_of)
        self.watch = informers.select(PODS, self._pod_changed, wants=_has_image_volume)

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


def _has_image_volume(pod: WatchedPod) -> bool:
    return bool(pod.image_volumes)
