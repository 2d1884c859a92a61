"""GKMCache and ClusterGKMCache as they are watched: every process holds all of them, so no user decides their size."""

from msgspec import structs

from gkm.api.caches import Cache, CacheSpec, ClusterGKMCache, GKMCache
from gkm.api.captured_metadata import READ_ANNOTATIONS, READ_LABELS
from gkm.api.meta import thin_metadata


class WatchedCache(GKMCache, frozen=True, rename="camel", tag_field="kind", tag="GKMCache"):
    """A GKMCache without the metadata that GKM does not read. `oversized` names the field that is too large."""

    oversized: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata, READ_LABELS, READ_ANNOTATIONS))

    def outline(self, why: str) -> "WatchedCache":
        """See gkm.kube.memory.HasOutline."""
        metadata, spec = thin_metadata(self.metadata), CacheSpec(self.spec.image)
        return WatchedCache(metadata, spec, self.status, oversized=why)


class WatchedClusterCache(ClusterGKMCache, frozen=True, rename="camel", tag_field="kind", tag="ClusterGKMCache"):
    """A ClusterGKMCache, in the same way."""

    oversized: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata, READ_LABELS, READ_ANNOTATIONS))

    def outline(self, why: str) -> "WatchedClusterCache":
        """See gkm.kube.memory.HasOutline."""
        metadata, spec = thin_metadata(self.metadata), CacheSpec(self.spec.image)
        return WatchedClusterCache(metadata, spec, self.status, oversized=why)


def oversized(cache: Cache) -> str:
    """Return which field of a watched cache is too large, so that its spec is not known; "" if none is."""
    return cache.oversized if isinstance(cache, WatchedCache | WatchedClusterCache) else ""
