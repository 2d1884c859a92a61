"""The caches of this node from the Kubernetes API: both kinds, filtered by node selector.

For an unreadable object, the last readable version stays in use. An object that was never readable leaves the source
incomplete, as an unreadable manifest does in standalone mode: its files on this disk are unknown, so the agent deletes
no files.
"""

import logging
import time
from collections.abc import Callable
from threading import Event

from gkm.api.caches import Cache, is_held_back, verified_digest
from gkm.api.errors import Reason
from gkm.api.meta import ObjectMeta, thin_metadata
from gkm.api.rollouts import is_open
from gkm.api.watched_caches import WatchedCache, WatchedClusterCache, oversized
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.reflector import Reflector
from gkm.kube.resources import NODES, WATCHED_CACHES, WATCHED_CLUSTER_CACHES, Resource
from msgspec import Struct, structs

from gkm_agent.caches.model import PullHold, WantedCache, membership, pull_secrets

_LOG = logging.getLogger(__name__)

MAX_SHOWN = 20
"""Number of cache names in one log line."""


class NodeView(Struct, frozen=True):
    """The fields of this agent's Node that the agent needs."""

    metadata: ObjectMeta

    def __post_init__(self) -> None:
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata, self.metadata.labels))


OWN_NODE: Resource[NodeView] = Resource(
    NODES.api_version,
    NODES.kind,
    NODES.plural,
    namespaced=False,
    type=NodeView,
    unbounded="only cluster administrators, and what they install, label Nodes",
)


class KubernetesSource:
    """The CacheSource of the Kubernetes API. It also watches the Node of this agent, for its labels and its uid.

    It calls `registered_anew` when the Node has another uid than before: garbage collection deletes the objects that
    the earlier Node owned.
    """

    def __init__(self, api: Api, node: str, changed: Event, registered_anew: Callable[[], None] = lambda: None) -> None:
        self._name = node
        self._changed = changed
        self._registered_anew = registered_anew
        self._uid = ""
        self._caches = Reflector(api, WATCHED_CACHES, self._on_change)
        self._cluster_caches = Reflector(api, WATCHED_CLUSTER_CACHES, self._on_change)
        own = ListSelector(fields=f"metadata.name={node}")
        self._nodes: Reflector[NodeView] = Reflector(api, OWN_NODE, self._on_node, selector=own)
        self._parts = (self._nodes, self._caches, self._cluster_caches)
        self._labels: dict[str, str] | None = None
        self._unknown: frozenset[Key] = frozenset()

    @property
    def synced(self) -> bool:
        """Implement CacheSource.synced.

        It is False before the Node is known, and while a cache exists that was never readable.
        """
        listed = all(part.synced.is_set() for part in self._parts)
        return listed and self._labels is not None and not self._never_read()

    @property
    def node(self) -> NodeView | None:
        """Return the Node as last read, None before the first read and if the Node does not exist."""
        return self._nodes.get(self._name)

    def caches(self) -> list[WantedCache]:
        """Implement CacheSource.caches; empty before the Node is known, because the node selectors need its labels.

        The caches of a deleted Node stay: the kubelet registers it again.
        """
        self._log_unread(self._never_read())
        labels = self._labels
        if labels is None:
            return []
        objects: list[Cache] = [*self._caches.values(), *self._cluster_caches.values()]
        found = (self._wanted(cache, labels) for cache in objects)
        return sorted((cache for cache in found if cache is not None), key=lambda cache: str(cache.ref))

    def start(self) -> None:
        """Implement CacheSource.start."""
        for part in self._parts:
            part.start()

    def wait(self, seconds: float) -> bool:
        """Implement CacheSource.wait."""
        deadline = time.monotonic() + seconds
        return all(part.synced.wait(max(0.0, deadline - time.monotonic())) for part in self._parts)

    def stop(self) -> None:
        """Implement CacheSource.stop."""
        for part in self._parts:
            part.close()

    def _never_read(self) -> frozenset[Key]:
        """Return the existing caches that were never readable."""
        parts: tuple[Reflector[WatchedCache] | Reflector[WatchedClusterCache], ...] = (
            self._caches,
            self._cluster_caches,
        )
        # `unreadable` first: an object that becomes readable in between is then found.
        found = ((part, namespace, name) for part in parts for namespace, name in part.unreadable)
        return frozenset((namespace, name) for part, namespace, name in found if part.get(name, namespace) is None)

    def _log_unread(self, unknown: frozenset[Key]) -> None:
        if unknown != self._unknown:
            self._unknown = unknown
            shown = [
                f"GKMCache {namespace}/{name}" if namespace else f"ClusterGKMCache {name}"
                for namespace, name in sorted(unknown)[:MAX_SHOWN]
            ]
            why = "the agent deletes no files until they are readable" if unknown else None
            level = logging.ERROR if unknown else logging.INFO
            _LOG.log(
                level,
                "set of cache objects that cannot be read changed",
                extra=fields(count=len(unknown), caches=shown or None, why=why),
            )

    def _wanted(self, cache: Cache | None, labels: dict[str, str]) -> WantedCache | None:
        return wanted_of(cache, self._name) if cache is not None and is_for(cache, labels) else None

    def _on_change(self, old: Cache | None, new: Cache | None) -> None:
        # Every node that reports a cache, and every pod that mounts it, changes its totals.
        labels = self._labels
        if labels is None or self._wanted(old, labels) != self._wanted(new, labels):
            self._changed.set()

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        if new is not None:
            self._labels = new.metadata.labels
            before, self._uid = self._uid, new.metadata.uid
            if before not in ("", self._uid):
                self._registered_anew()
        # The kubelet writes its Node every few minutes and its status more often; only uid and labels wake the agent.
        if old is None or new is None or _identity(old) != _identity(new):
            self._changed.set()


def _identity(node: NodeView) -> tuple[str, dict[str, str]]:
    return node.metadata.uid, node.metadata.labels


def is_for(cache: Cache, labels: dict[str, str]) -> bool:
    """Return whether the node selector of a cache matches these labels, and the cache is not being deleted."""
    wanted = cache.spec.node_selector.items()
    return cache.metadata.deletion_timestamp is None and all(labels.get(key) == value for key, value in wanted)


def wanted_of(cache: Cache, node: str) -> WantedCache | None:
    """Return the wanted cache for a cache object; None if its name cannot name a directory."""
    try:
        ref = CacheRef(cache.metadata.namespace or None, cache.metadata.name)
    except InvalidName as error:
        _LOG.warning("cache object with an invalid name skipped, not pulled", extra=fields(why=str(error)))
        return None
    digest = verified_digest(cache)
    hold = _unknown_spec(cache) or (_pull_hold(cache) if digest is None else _bounded_by_rollout(cache, node, digest))
    return WantedCache(
        ref,
        cache.spec.image,
        None if hold is not None else digest,
        hold,
        selected=bool(cache.spec.node_selector),
        pull_secrets=pull_secrets(cache),
        uid=cache.metadata.uid,
        membership=membership(cache.spec, cache.metadata.creation_timestamp, held_back=is_held_back(cache)),
    )


def _unknown_spec(cache: Cache) -> PullHold | None:
    """Return the reason why a node does not act on a cache whose spec it does not hold; it serves old content."""
    why = oversized(cache)
    return PullHold(Reason.TOO_LARGE, f"the object is too large: {why}; remove entries of this field") if why else None


def _bounded_by_rollout(cache: Cache, node: str, digest: str) -> PullHold | None:
    """Return the reason why a node must not pull a verified digest yet; it serves what it has meanwhile."""
    policy = cache.spec.rollout
    if policy is None or is_open(policy, cache.status.rollout, node, digest):
        return None
    at_a_time = f"{policy.max_concurrent_nodes} nodes at a time"
    return PullHold("", f"waiting: the rollout has not reached this node (spec.rollout: {at_a_time})")


def _pull_hold(cache: Cache) -> PullHold:
    condition = cache.status.condition("Verified")
    resolved = cache.status.image == cache.spec.image
    # A reference that does not resolve leaves no digest in the status, but the condition may still be current.
    current = resolved or (condition is not None and condition.observed_generation == cache.metadata.generation)
    if condition is None or not current or condition.status == "True":
        return PullHold("", "waiting for the controller to resolve and verify the image")
    if condition.status == "False" and resolved:
        return PullHold(condition.reason, condition.message, final=True, digest=cache.status.resolved_digest or "")
    return PullHold(condition.reason, f"waiting for the controller to verify the image: {condition.message}")
