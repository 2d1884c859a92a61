"""The volume attributes of a pod's csi volume (design "CSI volume attributes"): which cache is meant.

Pure. Attributes come from whoever may create a pod; what starts with csi.storage.k8s.io/ comes from kubelet, which
merges it last, so that a pod cannot forge it (kubelet csi_mounter.go, mergeMap).
"""

from collections.abc import Mapping
from typing import Final

from gkm.hoststate.names import CacheRef, InvalidName

from gkm_csi.refusals import Code, Refusal, invalid

OF_KUBELET: Final = "csi.storage.k8s.io/"

CACHE: Final = "cacheName"
NAMESPACE: Final = "cacheNamespace"
CLUSTER_CACHE: Final = "clusterCacheName"
READ_ONLY: Final = "readOnly"
UPSTREAM_CACHE: Final = "csi.gkm.io/GKMCache"
UPSTREAM_NAMESPACE: Final = "csi.gkm.io/namespace"

_KNOWN = frozenset({CACHE, NAMESPACE, CLUSTER_CACHE, READ_ONLY, UPSTREAM_CACHE, UPSTREAM_NAMESPACE})
_NOT_YET = frozenset({"ifUnavailable", "mountPath", "sizeLimit", "capture"})
_SHOWN = 3


def cache_of(attributes: Mapping[str, str], pod_namespace: str) -> CacheRef:
    """Return the cache that the attributes name, for a pod in `pod_namespace`.

    Raises:
        Refusal: they name none, more than one, another tenant's, or ask for what this version does not do.
    """
    given = {key: value for key, value in attributes.items() if not key.startswith(OF_KUBELET)}
    _check_names(given)
    _check_read_only(given)
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


def _check_names(given: Mapping[str, str]) -> None:
    later = sorted(_NOT_YET & given.keys())
    if later:
        raise invalid(f"volume attribute {', '.join(later)}: this version of csi.gkm.io does not do that; remove it")
    unknown = sorted(given.keys() - _KNOWN)
    if unknown:
        shown = ", ".join(_shown(key) for key in unknown[:_SHOWN])
        raise invalid(f"unknown volume attribute {shown}; csi.gkm.io knows {', '.join(sorted(_KNOWN))}")


def _check_read_only(given: Mapping[str, str]) -> None:
    value = given.get(READ_ONLY, "true")
    if value == "false":
        raise invalid(
            f'volume attribute {READ_ONLY}: "false": this version of csi.gkm.io mounts read-only only; '
            f'remove the attribute or say "true"'
        )
    if value != "true":
        raise invalid(f'volume attribute {READ_ONLY} must be "true", not {_shown(value)}')


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


def _shown(value: str) -> str:
    limit = 80
    return repr(value if len(value) <= limit else value[:limit] + "…")
