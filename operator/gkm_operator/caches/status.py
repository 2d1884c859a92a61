"""The status of a cache, computed from its image's outcome and its nodes' totals, and the Events of its changes. Pure.

Events are derived from the difference between the previous and the new status. Both come from the API object, so a new
leader or a restarted process sees no transition that did not happen.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from gkm.api.caches import HELD_BACK, Cache, CacheStatus, Delivery, kind_of
from gkm.api.errors import Reason
from gkm.api.grammar import agree, count_of, listed
from gkm.api.meta import API_VERSION, FALSE, TRUE, UNKNOWN, Condition, with_condition
from gkm.api.rollouts import RolloutStatus
from gkm.hoststate.escaping import escape
from gkm.kube.events import EventBody, Regarding
from msgspec import structs

from gkm_operator.caches.outcome import CurrentImage, Outcome, age_of_status, written_time
from gkm_operator.caches.totals import CacheSummary

FAILING = frozenset({"NodesFailed", "NodesIncompatible"})
"""Reasons of the condition Ready that need a person to act."""
NO_CACHE = "NoCacheForHardware"
_WARNINGS = (NO_CACHE, HELD_BACK)
"""Conditions that send an Event of the same name when they become True."""
_MAX_LABELS, _MAX_TEXT = 3, 320


class ConditionValue(NamedTuple):
    """A condition of a cache's status, without times."""

    kind: str
    status: str
    reason: str
    message: str


def ready_condition(
    summary: CacheSummary, *, verified: bool, selector: Mapping[str, str] | None = None
) -> tuple[str, str, str]:
    """Return status, reason and message of a cache's condition Ready; `selector` is the cache's nodeSelector.

    A node whose GPUs the cache does not fit does not count, unless there is no other: then no pod can use the cache.
    """
    if not verified:
        return FALSE, "NotVerified", "the image is not verified: see the condition Verified"
    if not summary.total:
        return FALSE, "NoMatchingNodes", f"no node reports this cache: {_expected_nodes(selector or {})}"
    if not summary.fitting:
        return FALSE, "NodesIncompatible", _fits_no_node(summary)
    counts = f"{summary.ready} of {count_of(summary.fitting, 'node')} {agree(summary.fitting, 'is', 'are')} ready"
    unfit = f", {summary.incompatible} incompatible{_reasons(summary.misfits)}" if summary.incompatible else ""
    if summary.ready == summary.fitting:
        return TRUE, "AllNodesReady", f"{counts}{unfit}"
    message = f"{counts}, {summary.failed} failed{_reasons(summary.failures)}{unfit}{_silent(summary)}"
    if summary.failed:
        return FALSE, "NodesFailed", message
    return FALSE, "NodesPending", message


def _by_image(status: CacheStatus, summary: CacheSummary, *, verified: bool) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready where kubelet pulls the image."""
    if not verified:
        return ready_condition(summary, verified=False)
    if status.image_volume is None:
        return FALSE, "NoMountPath", "pods get no image volume of it: build it with gkm cache build --for-path"
    nodes = f"{summary.ready} of {count_of(summary.total, 'node')} with such pods"
    return TRUE, "ImageVolume", f"new pods get the verified image as a volume; it is mounted on {nodes}"


def error_condition(summary: CacheSummary) -> tuple[str, str, str]:
    """Return status, reason and message of a cache's condition Error, which ignores silent and incompatible nodes."""
    if not summary.failed:
        return FALSE, "NoFailures", "no node reports a failure"
    message = f"{count_of(summary.failed, 'node')} failed{_reasons(summary.failures)}: see failedNodeConditions"
    return TRUE, "NodeFailuresPresent", message


def no_cache_condition(summary: CacheSummary) -> tuple[str, str, str]:
    """Return status, reason and message of a cache's condition NoCacheForHardware."""
    if not summary.unserved:
        return FALSE, "NoPodsAffected", "no pod is on a node whose GPUs the cache does not fit"
    more = summary.unserved - len(summary.unserved_named)
    named = f"{', '.join(summary.unserved_named)}{f' and {more} more' if more else ''}"
    message = (
        f"pods on {count_of(summary.unserved, 'node')} wait for this cache or started without it, because it fits no "
        f"GPU there: {named}; see incompatibleNodeConditions and failedNodeConditions"
    )
    return TRUE, "PodsAffected", message


def _expected_nodes(selector: Mapping[str, str]) -> str:
    """Return a description of the nodes that would report a cache, for comparison with the nodes of the cluster."""
    if not selector:
        return "every node with a GPU and a running agent would"
    labels = [ascii(f"{key}={value}"[:_MAX_TEXT])[1:-1] for key, value in sorted(selector.items())]
    return f"every node with a running agent and the labels of nodeSelector ({listed(labels, _MAX_LABELS)}) would"


def _fits_no_node(summary: CacheSummary) -> str:
    nodes = f"{agree(summary.total, 'node', 'nodes')} that {agree(summary.total, 'reports', 'report')} it"
    return (
        f"the cache fits no GPU of the {summary.total} {nodes}{_reasons(summary.misfits)}: "
        "see incompatibleNodeConditions"
    )


def _reasons(nodes: Mapping[str, list[str]]) -> str:
    return f" ({', '.join(nodes)})" if nodes else ""


def _silent(summary: CacheSummary) -> str:
    if not summary.silent:
        return ""
    named = ", ".join(f"{name} ({reason})" for name, reason in summary.silences.items())
    more = summary.silent - len(summary.silences)
    return f", {summary.silent} silent: {named}{f' and {more} more' if more > 0 else ''}"


_MAX_MESSAGE = 2048
_COLUMNS = ("totalNodes", "readyNodes", "failedNodes", "incompatibleNodes", "podsUsing", "sizeBytes")


def pinned_digest(cache: Cache) -> str | None:
    """Return the cache's status.resolvedDigest if it belongs to the present spec.image, else None."""
    return cache.status.resolved_digest if cache.status.image == cache.spec.image else None


def has_verdict(cache: Cache) -> bool:
    """Return whether the status has Verified True or False, and a digest, for the present spec.image."""
    verdict = cache.status.condition("Verified")
    return pinned_digest(cache) is not None and verdict is not None and verdict.status in (TRUE, FALSE)


def resolved_digest(cache: Cache, outcome: Outcome | None) -> str | None:
    """Return the digest of the cache's present spec.image, None if it is not known."""
    if outcome is not None and outcome.image == cache.spec.image:
        return outcome.digest or pinned_digest(cache)
    return pinned_digest(cache)


def current_image(cache: Cache, outcome: Outcome | None) -> CurrentImage | None:
    """Return the digest that the cache uses now, with its signers and age; None if it is not known."""
    digest = resolved_digest(cache, outcome)
    if digest is None:
        return None
    if outcome is not None and outcome.status == TRUE and outcome.sure and outcome.digest == digest:
        return CurrentImage(digest, outcome.signers, outcome.age)
    if digest == pinned_digest(cache):
        return CurrentImage(digest, cache.status.signers, age_of_status(cache.status))
    return CurrentImage(digest)


def desired_status(
    cache: Cache,
    outcome: Outcome | None,
    summary: CacheSummary,
    now: str,
    *,
    rollout: RolloutStatus | None = None,
    further: Sequence[ConditionValue] = (),
    delivery: Delivery = "csi",
) -> CacheStatus | None:
    """Return the status that a cache should have; None while its image has no outcome.

    `summary` and `rollout` belong to `resolved_digest(cache, outcome)`. An outcome for another image is ignored.
    Without an outcome (the process has just started) the verdict in the status remains. `further` are the conditions of
    another controller. `summary` is of pods where the `delivery` is image.
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
        "Ready": _by_image(status, summary, verified=counts)
        if delivery == "image"
        else ready_condition(summary, verified=counts, selector=selector),
        "Error": error_condition(summary),
        NO_CACHE: no_cache_condition(summary),
        **{each.kind: (each.status, each.reason, each.message) for each in further},
    }.items():
        # Few caches ever have one of these: an absent one is False.
        if kind in _WARNINGS and value == FALSE and status.condition(kind) is None:
            continue
        new = Condition(kind, value, reason, escape(message), now, status.observed_generation)
        conditions = with_condition(conditions, new)
    new_status = structs.replace(
        status,
        delivery=delivery,
        image_volume=status.image_volume if counts else None,
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
    """Return the object that a server-side apply of a cache's status sends.

    It carries the resource version of the object it was computed from, so a delayed writer cannot overwrite a newer
    status.
    """
    shown: dict[str, Any] = msgspec.to_builtins(status)
    zeros = dict.fromkeys(_COLUMNS, 0)
    version = cache.metadata.resource_version
    meta = {"name": cache.metadata.name} | ({"resourceVersion": version} if version else {})
    meta |= {"namespace": cache.metadata.namespace} if cache.metadata.namespace else {}
    return {"apiVersion": cache.api_version, "kind": kind_of(cache), "metadata": meta, "status": zeros | shown}


def _escaped(nodes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {escape(reason): names for reason, names in nodes.items()}


def _outweighs(cache: Cache, outcome: Outcome) -> bool:
    """Return whether the verdict in the status takes precedence over an inconclusive outcome.

    It does not if the mode now admits an image that was refused. A True may be older than the policies, which is safe:
    agents verify on their own (docs/reference/verdicts.md, "A True of another policy").
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
        cache.status, observed_generation=generation, conditions=with_condition(cache.status.conditions, condition)
    )
    if outcome.digest is None:
        # No digest was resolved. An older digest stays next to the image it was resolved from, which tells it from the
        # present one.
        return status
    known = cache.status if cache.status.resolved_digest == outcome.digest else CacheStatus()
    return structs.replace(
        status,
        image=outcome.image,
        resolved_digest=outcome.digest,
        size_bytes=outcome.size_bytes or known.size_bytes,
        runtime=outcome.runtime or known.runtime,
        image_volume=outcome.volume or known.image_volume,
        signers=list(outcome.signers),
        image_created=written_time(outcome.age.created),
        image_signed=written_time(outcome.age.signed),
    )


VERIFY, RESOLVE, SERVE = "Verify", "Resolve", "Serve"
UPDATED = "Updated"

_RECENT, _SKEW = timedelta(minutes=2), timedelta(minutes=1)
"""A new leader follows a killed one within 18 seconds (gkm.kube.leases); the clocks of machines differ."""


def events_of(old: CacheStatus, new: CacheStatus) -> Iterator[EventBody]:
    """Yield the Events about a cache whose status changes from `old` to `new`."""
    updated = old.image == new.image and old.resolved_digest not in (None, new.resolved_digest)
    if updated:
        note = f"{new.image} names another digest: from {old.resolved_digest} to {new.resolved_digest}"
        yield EventBody("Normal", UPDATED, RESOLVE, note)
    before, after = old.condition("Verified"), new.condition("Verified")
    if after is not None and (before is None or (before.status, before.reason) != (after.status, after.reason)):
        yield _of_verified(after)
    for kind in _WARNINGS:
        if not _is_true(old.condition(kind)):
            yield from _of_warning(new.condition(kind))
    before, after = old.condition("Ready"), new.condition("Ready")
    if after is None:
        return
    changed = (before is not None and before.status == TRUE) != (after.status == TRUE)
    if changed or (after.reason in FAILING and (before is None or before.reason != after.reason)):
        yield _of_ready(after, new, updated=updated)
    elif _is_true(new.condition("Error")) and not _is_true(old.condition("Error")):
        yield from _of_failures(new)


def missed_events(cache: Cache, now: datetime) -> Iterator[EventBody]:
    """Yield the Events of a cache's status write a moment ago: its writer may have died before it sent them.

    A process that is killed between a write and its Events does not emit them; its successor emits them instead, and
    gkm.kube.events drops those that exist already. A condition that changed with the last write carries its time.
    Ready=False is no transition in a new status, unless nodes failed.
    """
    written = cache.status.last_updated
    if written is None or not -_SKEW <= now - datetime.fromisoformat(written) <= _RECENT:
        return
    verified, ready, error = (cache.status.condition(kind) for kind in ("Verified", "Ready", "Error"))
    if verified is not None and verified.last_transition_time == written:
        yield _of_verified(verified)
    for warning in map(cache.status.condition, _WARNINGS):
        if warning is not None and warning.last_transition_time == written:
            yield from _of_warning(warning)
    first = verified is None or verified.last_transition_time == written
    if ready is not None and ready.last_transition_time == written and (ready.status == TRUE or not first):
        yield _of_ready(ready, cache.status, updated=False)
    elif error is not None and error.last_transition_time == written:
        yield from _of_failures(cache.status)


def _of_verified(condition: Condition) -> EventBody:
    good = condition.status == TRUE and condition.reason != Reason.UPDATE_REFUSED
    return EventBody("Normal" if good else "Warning", condition.reason, VERIFY, condition.message or condition.reason)


def _of_warning(condition: Condition | None) -> Iterator[EventBody]:
    """Yield the Event of a warning that has begun; later nodes or pods change the condition only."""
    if condition is not None and condition.status == TRUE:
        yield EventBody("Warning", condition.type, SERVE, condition.message)


def _of_failures(status: CacheStatus) -> Iterator[EventBody]:
    """Yield the Events of a new failure, with the reason of Ready if that names the failure, else of Error."""
    ready, error = status.condition("Ready"), status.condition("Error")
    if ready is not None and ready.reason in FAILING:
        yield _of_ready(ready, status, updated=False)
    elif error is not None and error.status == TRUE:
        yield EventBody("Warning", error.reason, SERVE, error.message)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == TRUE


def _of_ready(condition: Condition, status: CacheStatus, *, updated: bool) -> EventBody:
    # A new digest is on no node yet, and nodes come and go: only failures are warnings.
    bad = condition.reason == "NotVerified" or condition.reason in FAILING or status.failed_nodes
    good = condition.status == TRUE or updated or not bad
    return EventBody("Normal" if good else "Warning", condition.reason, SERVE, condition.message)


def regarding(cache: Cache) -> Regarding:
    """Return the reference to a cache for an Event."""
    meta = cache.metadata
    return Regarding(API_VERSION, kind_of(cache), meta.name, meta.namespace, meta.uid)
