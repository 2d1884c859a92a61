"""Translate a KernelCache into a GKMCache, and list what has no counterpart in GKM. Pure."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from gkm.api.caches import CacheStatus, GKMCache
from gkm.api.errors import Reason
from gkm.api.grammar import count_of
from gkm.api.kernel_caches import (
    API_VERSION,
    COMPATIBILITY_FOOTPRINT,
    DEFAULT_OCI_PATHS,
    KERNEL_CACHE,
    WORKLOAD_FOOTPRINT,
    KernelCache,
    KernelCacheCounts,
    KernelCacheNodeGroup,
    KernelCacheStatus,
    KernelCacheUsage,
    KernelCacheVerification,
)
from gkm.api.meta import API_VERSION as GKM_API_VERSION
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, ObjectMeta, with_condition
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


READY, COMPATIBLE, TRANSLATED = "Ready", "GPUCompatible", "Translated"
_OURS = frozenset({READY, COMPATIBLE, TRANSLATED})
"""The conditions of a KernelCache that GKM writes."""
PENDING, PREPARING, PREPARED, ERROR = "Pending", "Preparing", "Ready", "Error"
"""The states of a KernelCache that KServe defines."""
_NOT_YET = "the controllers have not looked at the image of the GKMCache yet"
_ALWAYS = "In no case does GKM compare spec.artifact.identity with pods, or list pods in status.usage"
_MAX_MESSAGE = 4096
_Value = tuple[str, str, str]
"""Status, reason and message of a condition."""


def kernel_cache_status(
    found: KernelCache,
    group: KernelCacheNodeGroup | None,
    cache: GKMCache | None,
    obstructed: Obstructed | None,
    now: str,
) -> KernelCacheStatus:
    """Return the status that a KernelCache should have. `cache` is its GKMCache, None if there is none."""
    observed = cache.status if cache is not None and cache.status.image == cache.spec.image else CacheStatus()
    values = {
        READY: _ready(observed, obstructed),
        COMPATIBLE: _compatible(observed),
        TRANSLATED: _translated(found, group),
    }
    conditions = own_conditions(found)
    for kind, (value, reason, message) in values.items():
        new = Condition(kind, value, reason, message[:_MAX_MESSAGE], now, found.metadata.generation)
        conditions = with_condition(conditions, new)
    return KernelCacheStatus(
        ERROR if obstructed else _state(observed),
        _verification(observed),
        KernelCacheUsage(observed.pods_using),
        _counts(observed),
        conditions,
    )


def own_conditions(found: KernelCache) -> list[Condition]:
    """Return the conditions of a KernelCache that have GKM's types, sorted by type."""
    return sorted((each for each in found.status.conditions if each.type in _OURS), key=lambda each: each.type)


def _state(observed: CacheStatus) -> str:
    verified = observed.condition("Verified")
    if verified is None or verified.status == UNKNOWN:
        return PENDING
    if verified.status == FALSE or observed.failed_nodes:
        return ERROR
    if not observed.total_nodes:
        return PENDING
    fitting = observed.total_nodes - observed.incompatible_nodes
    if fitting <= 0:
        return ERROR
    return PREPARED if observed.ready_nodes >= fitting else PREPARING


def _counts(observed: CacheStatus) -> KernelCacheCounts:
    fitting = max(0, observed.total_nodes - observed.incompatible_nodes)
    preparing = max(0, fitting - observed.ready_nodes - observed.failed_nodes)
    return KernelCacheCounts(fitting, observed.ready_nodes, preparing, observed.failed_nodes)


def _verification(observed: CacheStatus) -> KernelCacheVerification:
    verified = observed.condition("Verified")
    if verified is None or verified.status == UNKNOWN:
        why = (verified.reason, verified.message) if verified is not None else ("", _NOT_YET)
        return KernelCacheVerification("cert", PENDING, verified=False, reason=why[0], message=why[1])
    skipped = verified.reason == Reason.NOT_REQUIRED
    accepted = verified.status == TRUE and not skipped
    return KernelCacheVerification(
        "none" if skipped else "cert",
        "Skipped" if skipped else "Succeeded" if accepted else "Failed",
        verified=accepted,
        reason=verified.reason,
        message=verified.message[:_MAX_MESSAGE],
        verified_at=verified.last_transition_time,
    )


def _ready(observed: CacheStatus, obstructed: Obstructed | None) -> _Value:
    if obstructed is not None:
        return FALSE, obstructed.reason, obstructed.message
    ready = observed.condition("Ready")
    return (ready.status, ready.reason, ready.message) if ready is not None else (UNKNOWN, "NotVerified", _NOT_YET)


def _compatible(observed: CacheStatus) -> _Value:
    total, unfit = observed.total_nodes, observed.incompatible_nodes
    if not total:
        return UNKNOWN, "NoNodeReports", "no node has compared the cache with its GPUs yet"
    if not unfit:
        return TRUE, "AllNodesCompatible", f"the cache fits the GPUs of {count_of(total, 'node')}"
    reasons = "; ".join(_reasons(observed))
    reason = "NodesIncompatible" if unfit >= total else "SomeNodesIncompatible"
    return FALSE, reason, f"the cache does not fit the GPUs of {unfit} of {count_of(total, 'node')}: {reasons}"


def _reasons(observed: CacheStatus) -> Iterator[str]:
    for reason, nodes in sorted(observed.incompatible_node_conditions.items()):
        yield f"{reason}: {', '.join(nodes)}"


def _translated(found: KernelCache, group: KernelCacheNodeGroup | None) -> _Value:
    missing = "; ".join(without_counterpart(found, group))
    if missing:
        return FALSE, "PartlyTranslated", f"{missing}. For the rest, {mounting(found)}. {_ALWAYS}"
    return TRUE, "Translated", f"{mounting(found)}. {_ALWAYS}"
