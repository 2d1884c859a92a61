"""Statuses of a cache, as the controller computes them."""

from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.meta import ObjectMeta
from gkm_operator.caches.outcome import verdict_outcome
from gkm_operator.caches.status import desired_status
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.images import ImageClaims
from support.operator.images import DIGEST, GOOD

IMAGE = "registry.test/team/cache:1"
THEN = "2026-01-01T00:00:00Z"
NOBODY = CacheSummary()
UNFIT, FULL = {"ArchitectureMismatch": ["n"]}, {"DiskFull": ["m"]}


def cache(status: CacheStatus | None = None, image: str = IMAGE, generation: int = 1) -> GKMCache:
    meta = ObjectMeta(name="x", namespace="a", uid="u", generation=generation)
    return GKMCache(meta, CacheSpec(image), status or CacheStatus())


def settled(summary: CacheSummary = NOBODY) -> CacheStatus:
    """Return the status of a cache whose image was good."""
    status = desired_status(cache(), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), summary, THEN)
    assert status
    return status
