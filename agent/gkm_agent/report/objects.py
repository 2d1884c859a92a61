"""Build the node objects of the API from a status: name, labels, annotations, owner and the condition Ready. Pure.

The status of a node with many caches or pods is shortened until its object fits.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from gkm.api import meta
from gkm.api.fabrics import NodeFabricStatus
from gkm.api.grammar import listed
from gkm.api.meta import FALSE, TRUE, Condition, ObjectMeta, OwnerReference
from gkm.api.nodes import (
    CURRENT_CACHES_ANNOTATION,
    FAULTS_OF_INCOMPATIBLE,
    LAST_UPDATED_ANNOTATION,
    NODE_LABEL,
    CacheNode,
    ClusterGKMCacheNode,
    GKMCacheNode,
    NodeCacheStatus,
    NodeSpec,
    NodeStatus,
)
from gkm.hoststate.pointers import CacheState
from msgspec import structs
from msgspec.structs import replace

from gkm_agent.report.status import summary

HOSTNAME_LABEL = "kubernetes.io/hostname"
READY = "Ready"
_MAX_LABEL = 63
Status = TypeVar("Status", bound=NodeStatus | NodeFabricStatus)
_MAX_NAMES = 5
_IN_PROGRESS = frozenset({CacheState.PENDING, CacheState.DOWNLOADING, CacheState.EXTRACTING})
MAX_BYTES = 384 << 10
"""Size of a status as JSON. An object in etcd has at most 1.5 MiB, and server-side apply stores the path of every field
in it, which doubles the size of short values."""
_STEPS = ((None, None), (20, None), (0, None), (0, 160), (0, 0))
"""The most pods of a cache and the most characters of a message in each step; None means no limit."""


def node_label(node: str) -> str:
    """Return a node's name as a label value; shorten a name beyond 63 bytes, with a hash that keeps it unique."""
    if len(node) <= _MAX_LABEL:
        return node
    return f"{node[: _MAX_LABEL - 9].rstrip('-.')}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


def owners(node: str, uid: str) -> list[OwnerReference]:
    """Return the ownerReference to the Node; empty if `uid` is "", as without a cluster."""
    return [OwnerReference(api_version="v1", kind="Node", name=node, uid=uid)] if uid else []


def node_object(
    node: str, scope: str | None, status: NodeStatus, updated: str, *, hostname: str = "", owner_uid: str = ""
) -> CacheNode:
    """Return the object of one scope; `owner_uid` is the uid of the owning Node, "" without a cluster."""
    metadata = ObjectMeta(
        name=node,
        namespace=scope or "",
        labels={NODE_LABEL: node_label(node), HOSTNAME_LABEL: node_label(hostname or node)},
        annotations={LAST_UPDATED_ANNOTATION: updated, CURRENT_CACHES_ANNOTATION: summary(status)},
        owner_references=owners(node, owner_uid),
    )
    kind = ClusterGKMCacheNode if scope is None else GKMCacheNode
    return kind(metadata=metadata, spec=NodeSpec(node_name=node), status=status)


def manifest(value: msgspec.Struct) -> dict[str, Any]:
    """Return an API object as a mapping in the field order of a manifest."""
    built: dict[str, Any] = msgspec.to_builtins(value)
    return {key: built[key] for key in ("apiVersion", "kind", "metadata", "spec", "status")}


def with_condition(
    status: Status, kind: str, verdict: tuple[str, str, str], before: list[Condition], now: str
) -> Status:
    """Return a status with a new condition of type `kind`; `verdict` is its status, reason and message.

    `before` are the current conditions of the object, `now` is an API time. The transition time changes only with the
    status of the condition, so an unchanged status equals the current one.
    """
    own = [condition for condition in before if condition.type == kind]
    new = Condition(kind, *verdict, now, status.observed_generation)
    return structs.replace(status, conditions=meta.with_condition(own, new))


def without_conditions(status: Status) -> Status:
    """Return a status without its observed generation and conditions, for comparisons."""
    return structs.replace(status, observed_generation=0, conditions=[])


def with_generation(status: Status, generation: int) -> Status:
    """Return a status whose observedGeneration is `generation`."""
    conditions = [structs.replace(condition, observed_generation=generation) for condition in status.conditions]
    return structs.replace(status, observed_generation=generation, conditions=conditions)


def ready(status: NodeStatus) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready.

    Deleted caches and caches for other GPUs are ignored. The message names the caches that the reason is about, and
    with True those that the node cannot use.
    """
    message = summary(status) or "no caches"
    if failed := _named(status, _is_failed):
        return FALSE, "CachesFailed", f"{message}; {failed}"
    if pending := _named(status, lambda cache: cache.state in _IN_PROGRESS):
        return FALSE, "CachesPending", f"{message}; {pending}"
    unfit = _named(status, lambda cache: cache.state == CacheState.INCOMPATIBLE)
    return TRUE, "AllCachesReady", f"{message}; {unfit}" if unfit else message


def _is_failed(cache: NodeCacheStatus) -> bool:
    by_fault = cache.state == CacheState.INCOMPATIBLE and cache.reason in FAULTS_OF_INCOMPATIBLE
    return by_fault or cache.state == CacheState.FAILED


def _named(status: NodeStatus, counts: Callable[[NodeCacheStatus], bool]) -> str:
    """Return the names of the caches that count, with their reasons; "" without any."""
    found = sorted((name, cache.reason) for name, cache in status.caches.items() if counts(cache))
    return listed([f"{name} ({reason})" if reason else name for name, reason in found], _MAX_NAMES)


def fit_to_limit(status: NodeStatus, limit: int = MAX_BYTES) -> NodeStatus:
    """Return a status of at most `limit` bytes, shortened step by step.

    The first steps drop pods, the next ones messages; states, digests and reasons stay. The last step drops the caches
    at the end of the alphabet. The summary annotation counts the caches that stay.
    """
    for pods, characters in _STEPS:
        caches = {name: _shortened(cache, pods, characters) for name, cache in status.caches.items()}
        shortened = replace(status, caches=caches)
        if _size(shortened) <= limit:
            return shortened
    return _first(shortened, limit)


def _shortened(cache: NodeCacheStatus, pods: int | None, characters: int | None) -> NodeCacheStatus:
    groups = [replace(group, message=group.message[:characters]) for group in cache.incompatible_gpus]
    return replace(cache, pods=cache.pods[:pods], message=cache.message[:characters], incompatible_gpus=groups)


def _first(status: NodeStatus, limit: int) -> NodeStatus:
    remaining = limit - _size(replace(status, caches={}))
    caches: dict[str, NodeCacheStatus] = {}
    for name, cache in sorted(status.caches.items()):
        remaining -= len(msgspec.json.encode({name: cache})) + 1
        if remaining < 0:
            break
        caches[name] = cache
    return replace(status, caches=caches)


def _size(status: NodeStatus) -> int:
    return len(msgspec.json.encode(status))
