"""The volume attributes of a pod's csi volume (design "CSI volume attributes"): which cache is meant.

Pure. Attributes come from whoever may create a pod; what starts with csi.storage.k8s.io/ comes from kubelet, which
merges it last, so that a pod cannot forge it (kubelet csi_mounter.go, mergeMap).
"""

from collections.abc import Mapping
from typing import Final

from gkm.hoststate.names import CacheRef, InvalidName

from gkm_csi import volume_attributes as options
from gkm_csi.status_errors import Code, StatusError, invalid_argument
from gkm_csi.volume_attributes import quoted

KUBELET_PREFIX: Final = "csi.storage.k8s.io/"

CACHE: Final = "cacheName"
NAMESPACE: Final = "cacheNamespace"
CLUSTER_CACHE: Final = "clusterCacheName"
UPSTREAM_CACHE: Final = "csi.gkm.io/GKMCache"
UPSTREAM_NAMESPACE: Final = "csi.gkm.io/namespace"

_KNOWN_ATTRIBUTES = frozenset({CACHE, NAMESPACE, CLUSTER_CACHE, UPSTREAM_CACHE, UPSTREAM_NAMESPACE}) | options.NAMES
_MAX_REPORTED = 3


def pod_attributes(context: Mapping[str, str]) -> dict[str, str]:
    """Return what the pod's author wrote of a volume_context.

    Raises:
        Refusal: it holds an attribute that there is not.
    """
    attributes = {key: value for key, value in context.items() if not key.startswith(KUBELET_PREFIX)}
    unknown = sorted(attributes.keys() - _KNOWN_ATTRIBUTES)
    if unknown:
        these = ", ".join(quoted(key) for key in unknown[:_MAX_REPORTED])
        raise invalid_argument(
            f"unknown volume attribute {these}; csi.gkm.io knows {', '.join(sorted(_KNOWN_ATTRIBUTES))}"
        )
    return attributes


def cache_ref(attributes: Mapping[str, str], pod_namespace: str) -> CacheRef:
    """Return the cache that attributes name, for a pod in `pod_namespace`.

    Raises:
        Refusal: they name none, more than one, or another tenant's.
    """
    named = [key for key in (CACHE, CLUSTER_CACHE, UPSTREAM_CACHE) if key in attributes]
    if len(named) != 1:
        found = ", ".join(named) if named else "none of them"
        raise invalid_argument(
            f"the volume attributes must name one cache, by {CACHE} or by {CLUSTER_CACHE} "
            f"(or {UPSTREAM_CACHE}); found {found}"
        )
    key = named[0]
    namespace = _namespace(attributes, key, pod_namespace)
    ref = _ref(namespace, attributes[key], key)
    if namespace is not None and namespace != pod_namespace:
        raise StatusError(
            Code.PERMISSION_DENIED,
            f"{ref} belongs to another namespace than the pod, which runs in {pod_namespace}: a pod mounts caches of "
            f"its own namespace; create the cache there, or share it as a ClusterGKMCache and name it by "
            f"{CLUSTER_CACHE}",
        )
    return ref


def _namespace(attributes: Mapping[str, str], key: str, pod_namespace: str) -> str | None:
    """Return the namespace that is meant, None for a cluster cache."""
    companion = {CACHE: NAMESPACE, UPSTREAM_CACHE: UPSTREAM_NAMESPACE}.get(key)
    for other in (NAMESPACE, UPSTREAM_NAMESPACE):
        if other in attributes and other != companion:
            raise invalid_argument(f"volume attribute {other} does not go with {key}; remove one of them")
    if key == CACHE:
        return attributes.get(NAMESPACE, pod_namespace)
    # Upstream's driver: without a namespace a ClusterGKMCache is meant.
    return attributes.get(UPSTREAM_NAMESPACE) if key == UPSTREAM_CACHE else None


def _ref(namespace: str | None, name: str, key: str) -> CacheRef:
    try:
        return CacheRef(namespace, name)
    except InvalidName as error:
        raise invalid_argument(f"volume attribute {key} or its namespace: {error}") from error
