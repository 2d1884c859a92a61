"""The status of a cache, computed from its image's outcome and its nodes' totals. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from gkm.api.caches import Cache, CacheStatus, kind_of
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, with_condition
from gkm.api.rollouts import RolloutStatus
from gkm.hoststate.escaping import escape
from msgspec import structs

from gkm_operator.caches import age
from gkm_operator.caches.conditions import NO_CACHE, ConditionValue, error, no_cache_for_hardware, ready
from gkm_operator.caches.nodes.totals import CacheSummary
from gkm_operator.caches.outcome import CurrentImage, Outcome

_MAX_MESSAGE = 2048
_COLUMNS = ("totalNodes", "readyNodes", "failedNodes", "incompatibleNodes", "podsUsing", "sizeBytes")


def pinned_digest(cache: Cache) -> str | None:
    """Return the digest in the status if it belongs to the cache's present image."""
    return cache.status.resolved_digest if cache.status.image == cache.spec.image else None


def has_verdict(cache: Cache) -> bool:
    """Return whether the status has a definite verdict on the cache's present image."""
    verdict = cache.status.condition("Verified")
    return pinned_digest(cache) is not None and verdict is not None and verdict.status in (TRUE, FALSE)


def resolved_digest(cache: Cache, outcome: Outcome | None) -> str | None:
    """Return the digest of the cache's present image, as far as it is known."""
    if outcome is not None and outcome.image == cache.spec.image:
        return outcome.digest or pinned_digest(cache)
    return pinned_digest(cache)


def current_image(cache: Cache, outcome: Outcome | None) -> CurrentImage | None:
    """Return the resolved image of the cache, as far as it is known; its digest is that of `resolved_digest`."""
    digest = resolved_digest(cache, outcome)
    if digest is None:
        return None
    if outcome is not None and outcome.status == TRUE and outcome.sure and outcome.digest == digest:
        return CurrentImage(digest, outcome.signers, outcome.age)
    if digest == pinned_digest(cache):
        return CurrentImage(digest, cache.status.signers, age.of_status(cache.status))
    return CurrentImage(digest)


def desired_status(
    cache: Cache,
    outcome: Outcome | None,
    summary: CacheSummary,
    now: str,
    *,
    rollout: RolloutStatus | None = None,
    further: ConditionValue | None = None,
) -> CacheStatus | None:
    """Return the status that the cache should have; None while nothing is known of its present image.

    `summary` and `rollout` are those of `resolved_digest(cache, outcome)`. An outcome for another image is ignored.
    Without an outcome (the process has just started) the verdict in the status remains. `further` is the condition of
    another controller.
    """
    if outcome is not None and outcome.image != cache.spec.image:
        outcome = None
    if outcome is None and (cache.status.image != cache.spec.image or cache.status.condition("Verified") is None):
        return None
    status = cache.status if outcome is None else _verified(cache, outcome, now)
    verified = status.condition("Verified")
    conditions = status.conditions
    counts, selector = verified is not None and verified.status == TRUE, cache.spec.node_selector
    for kind, (value, reason, message) in {
        "Ready": ready(summary, verified=counts, selector=selector),
        "Error": error(summary),
        NO_CACHE: no_cache_for_hardware(summary),
        **({further.kind: (further.status, further.reason, further.message)} if further else {}),
    }.items():
        # Few caches ever have it: an absent one is False.
        if kind == NO_CACHE and value == FALSE and status.condition(kind) is None:
            continue
        new = Condition(kind, value, reason, escape(message), now, status.observed_generation)
        conditions = with_condition(conditions, new)
    new_status = structs.replace(
        status,
        total_nodes=summary.total,
        ready_nodes=summary.ready,
        failed_nodes=summary.failed,
        incompatible_nodes=summary.incompatible,
        pods_using=summary.pods,
        ready=f"{summary.ready}/{summary.fitting}",
        rollout=rollout,
        failed_node_conditions=_escaped(summary.failures),
        incompatible_node_conditions=_escaped(summary.misfits),
        conditions=conditions,
    )
    return new_status if new_status == cache.status else structs.replace(new_status, last_updated=now)


def apply_configuration(cache: Cache, status: CacheStatus) -> Mapping[str, Any]:
    """Return the object to apply to the status subresource; zeros are explicit, because columns show them.

    It carries the resource version of the object it was computed from, so a delayed writer cannot overwrite a newer
    status.
    """
    shown: dict[str, Any] = msgspec.to_builtins(status)
    zeros = dict.fromkeys(_COLUMNS, 0)
    version = cache.metadata.resource_version
    meta = {"name": cache.metadata.name} | ({"resourceVersion": version} if version else {})
    meta |= {"namespace": cache.metadata.namespace} if cache.metadata.namespace else {}
    return {
        "apiVersion": cache.api_version,
        "kind": kind_of(cache),
        "metadata": meta,
        "status": zeros | shown,
    }


def _escaped(nodes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {escape(reason): names for reason, names in nodes.items()}


def _outweighs(cache: Cache, outcome: Outcome) -> bool:
    """Return whether the verdict in the status takes precedence over an inconclusive outcome.

    It does not if the mode now admits an image that was refused. A True may be older than the policies, which is safe:
    agents verify on their own (docs/design/verdicts.md, "A True of another policy").
    """
    verdict = cache.status.condition("Verified")
    return (
        not outcome.sure
        and has_verdict(cache)
        and outcome.digest in (None, pinned_digest(cache))
        and verdict is not None
        and outcome.status in (UNKNOWN, verdict.status)
    )


def _verified(cache: Cache, outcome: Outcome, now: str) -> CacheStatus:
    generation = cache.metadata.generation
    if _outweighs(cache, outcome):
        return structs.replace(cache.status, observed_generation=generation)
    message = escape(outcome.message)[:_MAX_MESSAGE]
    condition = Condition("Verified", outcome.status, outcome.reason, message, now, generation)
    status = structs.replace(
        cache.status,
        observed_generation=generation,
        conditions=with_condition(cache.status.conditions, condition),
    )
    if outcome.digest is None:
        # Nothing was resolved. An older digest stays next to the image it was resolved from, which tells it from the
        # present one.
        return status
    known = cache.status if cache.status.resolved_digest == outcome.digest else CacheStatus()
    return structs.replace(
        status,
        image=outcome.image,
        resolved_digest=outcome.digest,
        size_bytes=outcome.size_bytes or known.size_bytes,
        runtime=outcome.runtime or known.runtime,
        signers=list(outcome.signers),
        image_created=age.written(outcome.age.created),
        image_signed=age.written(outcome.age.signed),
    )
