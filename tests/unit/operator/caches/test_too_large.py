"""A cache object that is too large is refused with its field, before anything is asked of a registry."""

from gkm.api.caches import CacheSpec, LocalObjectReference
from gkm.api.config import Config, Verification
from gkm.api.errors import Reason
from gkm.api.meta import FALSE, ObjectMeta
from gkm.api.watched_caches import WatchedCache, WatchedClusterCache, oversized
from gkm.kube.memory import bounded
from gkm_operator.caches import status
from gkm_operator.caches.outcome import check_image
from gkm_operator.caches.verification import check_key
from gkm_operator.images import CheckedImages
from support.images.cache_registry import PATIENT

MOST = [LocalObjectReference(f"{number:02}".ljust(253, "s")) for number in range(16)]


def a_cache(secrets: list[LocalObjectReference]) -> WatchedCache:
    meta = ObjectMeta(name="x", namespace="a", uid="u", generation=1, labels={"any": "label"})
    cache: WatchedCache = bounded(WatchedCache(meta, CacheSpec("registry.example/a:1", image_pull_secrets=secrets)))
    return cache


def test_its_verdict_names_the_field_and_the_next_step() -> None:
    found = check_image(CheckedImages.of(Config(Verification()), PATIENT), a_cache(MOST), None)
    assert (found.status, found.reason) == (FALSE, Reason.TOO_LARGE)
    assert found.message.startswith("the object is too large: spec.imagePullSecrets: it takes ")
    assert found.message.endswith("; remove entries of this field")


def test_it_is_checked_again_when_it_is_small_again() -> None:
    assert oversized(a_cache(MOST))
    assert not oversized(a_cache(MOST[:4]))
    assert check_key(a_cache(MOST)) != check_key(a_cache([]))


def test_a_watched_cache_has_the_kind_of_its_object() -> None:
    cluster = WatchedClusterCache(ObjectMeta(name="x"), CacheSpec("registry.example/a:1"))
    assert status.regarding(a_cache([])).kind == "GKMCache"
    assert status.regarding(cluster).kind == "ClusterGKMCache"
    assert a_cache([]).metadata.labels == {}
