"""Compute the status of a node for each scope from pointers, checks, volume records and GPUs. Pure.

A scope is a namespace, or None for cluster-wide caches.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from gkm.api.meta import timestamp
from gkm.api.nodes import CapturedImage, KernelMisses, NodeCacheStatus, NodeStatus, PodUse, RuntimeMisses
from gkm.gpus import preflight
from gkm.gpus.groups import groups
from gkm.gpus.values import Inventory
from gkm.hoststate import kernel_misses
from gkm.hoststate.escaping import escape
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from msgspec.structs import replace

from gkm_agent.caches.decisions import Observed

MAX_PODS = 500
"""Limit of pods in the status of one cache. An API object has at most 1.5 MiB; a kubelet runs a few hundred pods."""

NO_CAPTURES: Final[Mapping[str, Sequence[CapturedImage]]] = MappingProxyType({})
NO_MISSES: Final[Mapping[str, kernel_misses.RuntimeMisses]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """Parts of the status that do not come from pointers: captures by namespace, awaited caches, misses by volume."""

    captures: Mapping[str, Sequence[CapturedImage]] = field(default_factory=lambda: NO_CAPTURES)
    awaited: Collection[CacheRef] = ()
    misses: Mapping[str, kernel_misses.RuntimeMisses] = field(default_factory=lambda: NO_MISSES)


def statuses(
    observed: Mapping[CacheRef, Observed],
    records: Iterable[VolumeRecord],
    inventory: Inventory,
    findings: NodeFindings | None = None,
    choices: Iterable[FamilyChoice] = (),
) -> dict[str | None, NodeStatus]:
    """Return {scope: status} for every scope with caches, with pods that still use a deleted cache, or with captures.

    A cache without a pointer has no status yet. `choices` are the chosen members of families: kernels that a pod
    compiled although it mounts a family are reported for its chosen member.
    """
    members = {choice.ref: choice.member for choice in choices}
    chosen = set(members.values())
    findings = findings or NodeFindings()
    captures = findings.captures
    pointed = {ref: (cache.pointer, cache) for ref, cache in observed.items() if cache.pointer is not None}
    users: dict[CacheRef, list[VolumeRecord]] = {}
    without: Counter[CacheRef] = Counter()
    for record in sorted(records, key=lambda record: record.volume_id):
        # An empty volume uses no entry, and the pod may have invented the name of its cache.
        if record.digest:
            users.setdefault(record.ref, []).append(record)
        else:
            without[members.get(record.ref, record.ref)] += 1
    caches: dict[str | None, dict[str, NodeCacheStatus]] = {}
    for ref in sorted({*pointed, *users}, key=lambda ref: (ref.namespace or "", ref.name)):
        using = users.get(ref, [])
        status = _wanted(*pointed[ref], inventory) if ref in pointed else _deleting(using)
        status = replace(status, pods=_pods(using, findings.misses), chosen=ref in chosen)
        if status.state == CacheState.INCOMPATIBLE.value:
            status = replace(status, pods_without_cache=without[ref], pod_waits=ref in findings.awaited)
        caches.setdefault(ref.namespace, {})[ref.name] = status
    gpus = groups(inventory.gpus)
    return {
        scope: NodeStatus(gpus=gpus, caches=caches.get(scope, {}), captures=list(captures.get(scope or "", ())))
        for scope in dict.fromkeys((*caches, *captures))
    }


def ready_digests(observed: Mapping[CacheRef, Observed], choices: Iterable[FamilyChoice]) -> dict[CacheRef, str]:
    """Return the digests that pods can mount now, by the name of the cache or family."""
    pointed = ((ref, cache.pointer) for ref, cache in observed.items())
    ready = {ref: pointer.digest for ref, pointer in pointed if pointer and pointer.state is CacheState.READY}
    return ready | {choice.ref: ready[choice.member] for choice in choices if choice.member in ready}


def summary(status: NodeStatus) -> str:
    """Return a summary of the cache states for a printer column, such as `2 Ready, 1 Incompatible`."""
    counts: dict[str, int] = {}
    for cache in status.caches.values():
        counts[cache.state] = counts.get(cache.state, 0) + 1
    return ", ".join(f"{counts[state.value]} {state.value}" for state in _ORDER if state.value in counts)


_ORDER = (
    CacheState.READY,
    CacheState.EXTRACTING,
    CacheState.DOWNLOADING,
    CacheState.PENDING,
    CacheState.INCOMPATIBLE,
    CacheState.FAILED,
    CacheState.DELETING,
)


def _wanted(pointer: Pointer, observed: Observed, inventory: Inventory) -> NodeCacheStatus:
    check, attempt, failed = observed.check, observed.attempt, pointer.state is CacheState.FAILED
    matches = check is not None and check.digest == pointer.digest and check.image == pointer.image
    fit = preflight.check(check.targets, inventory.gpus) if check is not None and matches else None
    return NodeCacheStatus(
        state=pointer.state.value,
        digest=pointer.digest or None,
        compatible_gpus=list(fit.compatible) if fit else [],
        incompatible_gpus=list(fit.incompatible) if fit else [],
        reason=escape(pointer.reason)[:64],
        message=escape(pointer.message)[:1024],
        size_bytes=pointer.size_bytes,
        progress=pointer.progress,
        next_try=timestamp(datetime.fromtimestamp(attempt.next_try, UTC)) if attempt and failed else None,
        last_updated=pointer.updated or None,
    )


def _deleting(using: list[VolumeRecord]) -> NodeCacheStatus:
    return NodeCacheStatus(
        state=CacheState.DELETING.value,
        digest=using[0].digest,
        message="no longer wanted on this node; its files stay until the pods that mount it are gone",
    )


def _pods(using: list[VolumeRecord], misses: Mapping[str, kernel_misses.RuntimeMisses]) -> list[PodUse]:
    return [
        PodUse(each.pod_namespace, each.pod_name, each.volume_id, each.digest, _misses(misses.get(each.volume_id)))
        for each in using[:MAX_PODS]
    ]


def _misses(found: kernel_misses.RuntimeMisses | None) -> KernelMisses | None:
    if found is None:
        return None
    runtimes = {
        name: RuntimeMisses(
            each.kernels,
            each.mounted,
            {reason.value: count for reason, count in sorted(each.reasons.items()) if count},
            each.difference,
        )
        for name, each in found.items()
    }
    total: Counter[str] = Counter()
    for each in runtimes.values():
        total.update(each.reasons)
    mounted = sum(each.mounted for each in runtimes.values())
    at_least = not all(each.complete for each in found.values())
    return KernelMisses(total.total(), mounted, dict(sorted(total.items())), at_least=at_least, runtimes=runtimes)
