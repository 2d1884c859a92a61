"""GKMCache and ClusterGKMCache as they are watched: every process holds all of them, so no user decides their size.

A process may hold 20,000 of them. So they share what most of them have: no status before the controllers wrote one, the
default policy of updates, and no labels. A reader changes no part of a watched object.
"""

from msgspec import structs

from gkm.api.caches import Cache, CacheSpec, CacheStatus, ClusterGKMCache, GKMCache, UpdatePolicy
from gkm.api.captured_metadata import READ_ANNOTATIONS, READ_LABELS
from gkm.api.meta import thin_metadata

_NO_STATUS, _DEFAULT_POLICY = CacheStatus(), UpdatePolicy()


class WatchedCache(GKMCache, frozen=True, rename="camel", tag_field="kind", tag="GKMCache"):
    """A GKMCache as a watch holds it: with reduced metadata. `oversized` names a field that is too large."""

    oversized: str = ""

    def __post_init__(self) -> None:
        _reduce(self)

    def outline(self, why: str) -> "WatchedCache":
        """Return a copy of a cache that is too large, with its image only; `why` names the field."""
        metadata, spec = thin_metadata(self.metadata), CacheSpec(self.spec.image)
        return WatchedCache(metadata, spec, self.status, oversized=why)


class WatchedClusterCache(ClusterGKMCache, frozen=True, rename="camel", tag_field="kind", tag="ClusterGKMCache"):
    """A ClusterGKMCache as a watch holds it: with reduced metadata. `oversized` names a field that is too large."""

    oversized: str = ""

    def __post_init__(self) -> None:
        _reduce(self)

    def outline(self, why: str) -> "WatchedClusterCache":
        """Return a copy of a cache that is too large, with its image only; `why` names the field."""
        metadata, spec = thin_metadata(self.metadata), CacheSpec(self.spec.image)
        return WatchedClusterCache(metadata, spec, self.status, oversized=why)


def _reduce(cache: WatchedCache | WatchedClusterCache) -> None:
    structs.force_setattr(cache, "metadata", thin_metadata(cache.metadata, READ_LABELS, READ_ANNOTATIONS))
    if cache.status == _NO_STATUS:
        structs.force_setattr(cache, "status", _NO_STATUS)
    if cache.spec.update_policy == _DEFAULT_POLICY:
        structs.force_setattr(cache.spec, "update_policy", _DEFAULT_POLICY)


def oversized(cache: Cache) -> str:
    """Return the field that makes a watched cache too large, so that its spec was dropped; "" if its size is fine."""
    return cache.oversized if isinstance(cache, WatchedCache | WatchedClusterCache) else ""
