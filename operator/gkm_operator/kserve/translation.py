"""Translate a KernelCache into a GKMCache, and list what has no counterpart in GKM. Pure."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from gkm.api.caches import GKMCache
from gkm.api.kernel_caches import (
    API_VERSION,
    COMPATIBILITY_FOOTPRINT,
    DEFAULT_OCI_PATHS,
    KERNEL_CACHE,
    WORKLOAD_FOOTPRINT,
    KernelCache,
    KernelCacheNodeGroup,
)
from gkm.api.meta import API_VERSION as GKM_API_VERSION
from gkm.api.meta import ObjectMeta
from gkm.api.pod_caches import CACHE, CONTAINER, PATH


class Obstacle(StrEnum):
    """Reasons of the condition Ready for a KernelCache that has no GKMCache, or one that does not match."""

    NODE_GROUP_MISSING = "NodeGroupMissing"
    NAME_TAKEN = "NameTaken"
    CACHE_CHANGED = "CacheChanged"
    CACHE_REFUSED = "CacheRefused"


class Obstructed(NamedTuple):
    """The reason why a KernelCache has no matching GKMCache, with a sentence that says what to do."""

    reason: Obstacle
    message: str


def cache_object(found: KernelCache, group: KernelCacheNodeGroup) -> dict[str, Any]:
    """Return the GKMCache to create for a KernelCache, as JSON."""
    metadata, footprints = found.metadata, found.spec.artifact.identity.footprints
    identity = {
        WORKLOAD_FOOTPRINT: footprints.workload_footprint,
        COMPATIBILITY_FOOTPRINT: footprints.compatibility_footprint,
    }
    # Without blockOwnerDeletion, which would need a right on KernelCaches where the API server enforces it.
    owner = {"apiVersion": API_VERSION, "kind": KERNEL_CACHE, "name": metadata.name, "uid": metadata.uid}
    return {
        "apiVersion": GKM_API_VERSION,
        "kind": "GKMCache",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": {"app.kubernetes.io/managed-by": "gkm"},
            "annotations": {key: value for key, value in identity.items() if value},
            "ownerReferences": [owner],
        },
        "spec": {"image": found.spec.artifact.image_reference, "nodeSelector": group.spec.node_selector},
    }


def selector_patch(cache: GKMCache, group: KernelCacheNodeGroup) -> dict[str, Any] | None:
    """Return the merge patch that gives a GKMCache the nodeSelector of a group; None if it has it."""
    wanted, present = group.spec.node_selector, cache.spec.node_selector
    if wanted == present:
        return None
    version = {"uid": cache.metadata.uid, "resourceVersion": cache.metadata.resource_version}
    return {"metadata": version, "spec": {"nodeSelector": dict.fromkeys(present) | wanted}}


def is_owned(cache: GKMCache, owner: ObjectMeta) -> bool:
    """Return whether a GKMCache was made from this KernelCache, not from an earlier one of the same name."""
    return any(each.uid == owner.uid for each in cache.metadata.owner_references if owner.uid)


def is_of_kernel_cache(cache: GKMCache) -> bool:
    """Return whether a GKMCache was made from any KernelCache."""
    return any((each.api_version, each.kind) == (API_VERSION, KERNEL_CACHE) for each in cache.metadata.owner_references)


def without_counterpart(found: KernelCache, group: KernelCacheNodeGroup | None) -> Iterator[str]:
    """Yield a clause for each request in a KernelCache that GKM does not fulfill."""
    paths = found.spec.artifact.cache_paths
    if len(paths) > 1:
        yield f"it has {len(paths)} cachePaths, and a label gives a pod the first: name each by a volume of csi.gkm.io"
    if others := sorted({path.oci_path for path in paths} - set(DEFAULT_OCI_PATHS)):
        yield f"GKM reads no ociPath {', '.join(others)[:128]}: it reads {' and '.join(DEFAULT_OCI_PATHS)}"
    if group is not None and group.spec.tolerations:
        yield f"GKM ignores the tolerations of {group.metadata.name}: the chart has those of its agents"


def mounting(found: KernelCache) -> str:
    """Return a clause that says how a pod mounts the cache."""
    path = next(iter(found.spec.artifact.cache_paths), None)
    wishes = {PATH: path.container_path, CONTAINER: path.container_name} if path is not None else {}
    annotations = [f"{key}={value[:256]}" for key, value in wishes.items() if value]
    joined = f", with the annotations {' and '.join(annotations)}" if annotations else ""
    return f"a pod mounts the cache by the label {CACHE}={found.metadata.name}{joined}"
