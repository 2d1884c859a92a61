"""The captures that nodes announce and the cache objects of the cluster, from the watches of caches. Thread-safe."""

from collections.abc import Callable

from gkm.api.caches import Cache
from gkm.kube.index import Index

from gkm_operator.caches.node_reports import NodeObject, ReportedCapture
from gkm_operator.caches.totals import CacheKey, key_of
from gkm_operator.captures.objects import CapturedCache, captured_cache, digests_named, is_naming


class ObservedCaptures:
    """Indexes announced captures and cache objects; `changed` is called with a namespace whose captures changed."""

    def __init__(self, registry: str, changed: Callable[[str], None]) -> None:
        self._registry = registry
        self._changed = changed
        self._nodes: Index[str, NodeObject] = Index(_namespaces_of_report, lambda report: report.metadata.name)
        self._by_digest: Index[str, Cache] = Index(digests_named, key_of)
        self._by_namespace: Index[str, Cache] = Index(self._namespaces_of_cache, key_of)
        self._by_family: Index[CacheKey, Cache] = Index(_families_of, key_of)
        self._caches: Index[CacheKey, Cache] = Index(lambda cache: (key_of(cache),), key_of)

    def report_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        """Apply a change of a node's report (GKMCacheNode)."""
        self._nodes.change(old, new)
        before, after = (() if report is None else report.status.captures for report in (old, new))
        if before != after:
            found = new or old
            if found is not None:
                self._changed(found.metadata.namespace)

    def cache_changed(self, old: Cache | None, new: Cache | None) -> None:
        """Update the indexes after a change of a cache object: None before its creation and after its deletion."""
        for index in (self._by_digest, self._by_namespace, self._by_family, self._caches):
            index.change(old, new)
        for name in {name for cache in (old, new) if cache is not None for name in self._namespaces_of_cache(cache)}:
            self._changed(name)

    def namespaces(self) -> list[str]:
        """Return every namespace with announced or registered captures."""
        return sorted({*self._nodes.keys(), *self._by_namespace.keys()})

    def announced(self, namespace: str) -> list[tuple[str, ReportedCapture]]:
        """Return the captures that nodes announce for a namespace, each with the node's name."""
        return [
            (report.metadata.name, capture)
            for report in self._nodes.get(namespace)
            for capture in report.status.captures
        ]

    def report_of(self, namespace: str, node: str) -> NodeObject | None:
        """Return the GKMCacheNode by which a node announces captures of a namespace; None if it has none."""
        return next((each for each in self._nodes.get(namespace) if each.metadata.name == node), None)

    def registered(self, namespace: str) -> list[CapturedCache]:
        """Return the cache objects made from captures of a namespace's pods, of both kinds."""
        found = (captured_cache(cache, self._registry) for cache in self._by_namespace.get(namespace))
        return [each for each in found if each is not None]

    def has_member(self, family: CacheKey, digest: str) -> bool:
        """Return whether a cache of a family has the image with this digest."""
        return any(digest in digests_named(each) for each in self._members(family))

    def numbers_of_users(self, family: CacheKey) -> list[int]:
        """Return the generation numbers that users gave to members of a family."""
        return [each.spec.generation or 0 for each in self._members(family) if not self._is_captured(each)]

    def get(self, key: CacheKey) -> Cache | None:
        """Return a cache object as the watch last showed it; None if it does not exist."""
        return next(iter(self._caches.get(key)), None)

    def is_unchanged(self, cache: CapturedCache) -> bool:
        """Return whether the watch still shows this captured cache without a change."""
        found = self.get(cache.key)
        return found is not None and captured_cache(found, self._registry) == cache

    def named_by_user_cache(self, cache: CapturedCache) -> str:
        """Return the name of a user's cache object in the same namespace that uses this image; "" if absent.

        A cache of another namespace does not retain captures: its author has no rights here, and its name is not
        published here.
        """
        named = self._by_digest.get(cache.image.rpartition("@")[2])
        found = [key_of(each) for each in named if not self._is_captured(each) and is_naming(each, cache.image)]
        return min((str(key) for key in found if key.namespace == cache.key.namespace), default="")

    def _members(self, family: CacheKey) -> list[Cache]:
        """Return the caches of a family, by all authors, in its namespace."""
        named = self.get(family)
        return [*self._by_family.get(family), *([named] if named is not None and not named.spec.family else [])]

    def _is_captured(self, cache: Cache) -> bool:
        return captured_cache(cache, self._registry) is not None

    def _namespaces_of_cache(self, cache: Cache) -> tuple[str, ...]:
        found = captured_cache(cache, self._registry)
        return () if found is None else (found.namespace,)


def _families_of(cache: Cache) -> tuple[CacheKey, ...]:
    return (CacheKey(cache.metadata.namespace, cache.spec.family),) if cache.spec.family else ()


def _namespaces_of_report(report: NodeObject) -> tuple[str, ...]:
    # Captures come from a namespace's pods: the object of cluster-wide caches has none.
    return (report.metadata.namespace,) if report.metadata.namespace and report.status.captures else ()
