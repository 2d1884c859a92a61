"""Compute the status of a KernelCache from the GKMCache that was made from it. Pure."""

from collections.abc import Iterator

from gkm.api.caches import CacheStatus, GKMCache
from gkm.api.errors import Reason
from gkm.api.grammar import count_of
from gkm.api.kernel_caches import (
    KernelCache,
    KernelCacheCounts,
    KernelCacheNodeGroup,
    KernelCacheStatus,
    KernelCacheUsage,
    KernelCacheVerification,
)
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, with_condition

from gkm_operator.kserve.translation import Obstructed, mounting, without_counterpart

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
