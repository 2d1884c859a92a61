"""The cache that the attributes of a volume select."""

import pytest
from gkm.hoststate.names import CacheRef
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.request import cache_ref, pod_attributes

POD = "ml-apps"


@pytest.mark.parametrize(
    ("attributes", "ref"),
    [
        ({"cacheName": "llama"}, CacheRef("ml-apps", "llama")),
        ({"cacheName": "llama", "cacheNamespace": "ml-apps"}, CacheRef("ml-apps", "llama")),
        ({"cacheName": "llama", "readOnly": "true"}, CacheRef("ml-apps", "llama")),
        ({"clusterCacheName": "shared"}, CacheRef(None, "shared")),
        ({"csi.gkm.io/GKMCache": "llama", "csi.gkm.io/namespace": "ml-apps"}, CacheRef("ml-apps", "llama")),
        ({"csi.gkm.io/GKMCache": "shared"}, CacheRef(None, "shared")),
        ({"cacheName": "llama", "csi.storage.k8s.io/anything": "kubelet's"}, CacheRef("ml-apps", "llama")),
        ({"cacheName": "llama", "readOnly": "false", "mountPath": "/cache", "capture": "true"}, CacheRef(POD, "llama")),
    ],
)
def test_a_cache_is_named(attributes: dict[str, str], ref: CacheRef) -> None:
    assert cache_ref(pod_attributes(attributes), POD) == ref


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({}, "none of them"),
        ({"cacheNamespace": "ml-apps"}, "none of them"),
        ({"cacheName": "a", "clusterCacheName": "b"}, "cacheName, clusterCacheName"),
        ({"cacheName": "a", "csi.gkm.io/GKMCache": "a"}, "csi.gkm.io/GKMCache"),
        ({"clusterCacheName": "a", "cacheNamespace": "ml-apps"}, "cacheNamespace does not go with clusterCacheName"),
        ({"cacheName": "a", "csi.gkm.io/namespace": "ml-apps"}, "csi.gkm.io/namespace does not go with cacheName"),
        ({"csi.gkm.io/GKMCache": "a", "cacheNamespace": "ml-apps"}, "cacheNamespace does not go with"),
        ({"cacheName": ""}, "cacheName"),
        ({"cacheName": "../../etc"}, "../../etc"),
        ({"cacheName": "a..b"}, "a..b"),
        ({"clusterCacheName": "../ml-apps/llama"}, "clusterCacheName"),
        ({"cacheName": "a", "cacheNamespace": ".."}, "'..'"),
        ({"cacheName": "a", "cacheNamespace": ""}, "''"),
        ({"csi.gkm.io/GKMCache": "a", "csi.gkm.io/namespace": ""}, "''"),
        ({"cacheName": "a", "cacheNamespace": "_cluster-scoped"}, "_cluster-scoped"),
        ({"cacheName": "a", "cachename": "b"}, "unknown volume attribute 'cachename'"),
        ({"cacheName": "a", "x" * 1000: ""}, "…"),
    ],
)
def test_attributes_without_exactly_one_cache_are_invalid(attributes: dict[str, str], told: str) -> None:
    with pytest.raises(StatusError) as caught:
        cache_ref(pod_attributes(attributes), POD)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert told in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "attributes",
    [
        {"cacheName": "llama", "cacheNamespace": "other"},
        {"csi.gkm.io/GKMCache": "llama", "csi.gkm.io/namespace": "other"},
    ],
)
def test_a_cache_of_another_namespace_is_denied(attributes: dict[str, str]) -> None:
    with pytest.raises(StatusError, match=r"GKMCache other/llama belongs to another namespace.*ml-apps") as caught:
        cache_ref(attributes, POD)

    assert caught.value.code is Code.PERMISSION_DENIED
