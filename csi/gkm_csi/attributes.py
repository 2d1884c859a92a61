"""The volume attributes of a pod's csi volume (design "CSI volume attributes"): which cache is meant.

Pure. Attributes come from whoever may create a pod; what starts with csi.storage.k8s.io/ comes from kubelet, which
merges it last, so that a pod cannot forge it (kubelet csi_mounter.go, mergeMap).
"""

from collections.abc import Mapping
from typing import Final

from gkm.hoststate.names import CacheRef, InvalidName

from gkm_csi import options
from gkm_csi.options import shown
from gkm_csi.refusals import Code, Refusal, invalid

OF_KUBELET: Final = "csi.storage.k8s.io/"

CACHE: Final = "cacheName"
NAMESPACE: Final = "cacheNamespace"
CLUSTER_CACHE: Final = "clusterCacheName"
UPSTREAM_CACHE: Final = "csi.gkm.io/GKMCache"
UPSTREAM_NAMESPACE: Final = "csi.gkm.io/namespace"

_KNOWN = frozenset({CACHE, NAMESPACE, CLUSTER_CACHE, UPSTREAM_CACHE, UPSTREAM_NAMESPACE}) | options.NAMES
_SHOWN = 3


def of_pod(context: Mapping[str, str]) -> dict[str, str]:
    """Return what the pod's author wrote of a volume_context.

    Raises:
        Refusal: it holds an attribute that there is not.
    """
    given = {key: value for key, value in context.items() if not key.startswith(OF_KUBELET)}
    unknown = sorted(given.keys() - _KNOWN)
    if unknown:
        these = ", ".join(shown(key) for key in unknown[:_SHOWN])
        raise invalid(f"unknown volume attribute {these}; csi.gkm.io knows {', '.join(sorted(_KNOWN))}")
    return given


def cache_of(given: Mapping[str, str], pod_namespace: str) -> CacheRef:
    """Return the cache that attributes name, for a pod in `pod_namespace`.

    Raises:
        Refusal: they name none, more than one, or another tenant's.
    """
    named = [key for key in (CACHE, CLUSTER_CACHE, UPSTREAM_CACHE) if key in given]
    if len(named) != 1:
        found = ", ".join(named) if named else "none of them"
        raise invalid(
            f"the volume attributes must name one cache, by {CACHE} or by {CLUSTER_CACHE} "
            f"(or {UPSTREAM_CACHE}); found {found}"
        )
    key = named[0]
    namespace = _namespace(given, key, pod_namespace)
    ref = _ref(namespace, given[key], key)
    if namespace is not None and namespace != pod_namespace:
        raise Refusal(
            Code.PERMISSION_DENIED,
            f"{ref} belongs to another namespace than the pod, which runs in {pod_namespace}: a pod mounts caches of "
            f"its own namespace; create the cache there, or share it as a ClusterGKMCache and name it by "
            f"{CLUSTER_CACHE}",
        )
    return ref


def _namespace(given: Mapping[str, str], key: str, pod_namespace: str) -> str | None:
    """Return the namespace that is meant, None for a cluster cache."""
    companion = {CACHE: NAMESPACE, UPSTREAM_CACHE: UPSTREAM_NAMESPACE}.get(key)
    for other in (NAMESPACE, UPSTREAM_NAMESPACE):
        if other in given and other != companion:
            raise invalid(f"volume attribute {other} does not go with {key}; remove one of them")
    if key == CACHE:
        return given.get(NAMESPACE, pod_namespace)
    # Upstream's driver: without a namespace a ClusterGKMCache is meant.
    return given.get(UPSTREAM_NAMESPACE) if key == UPSTREAM_CACHE else None


def _ref(namespace: str | None, name: str, key: str) -> CacheRef:
    try:
        return CacheRef(namespace, name)
    except InvalidName as error:
        raise invalid(f"volume attribute {key} or its namespace: {error}") from error
