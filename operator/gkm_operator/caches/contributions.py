"""What one node contributes to the status of its caches: small, hashable, shared between nodes that are alike."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.kube.resources import Resource
from msgspec import Raw, Struct, field

READY = "Ready"
_FAILED = frozenset({"Failed", "Incompatible"})


class IncompatibleGPUs(Struct, frozen=True):
    """Why some GPUs of a node cannot use a cache."""

    reason: str = ""


class NodeCache(Struct, frozen=True, rename="camel"):
    """One cache on one node, as far as it is counted."""

    state: str
    digest: str | None = None
    reason: str = ""
    incompatible_gpus: list[IncompatibleGPUs] = field(default_factory=list, name="incompatibleGPUs")
    pods: list[Raw] = field(default_factory=list)


class NodeStatus(Struct, frozen=True):
    """The caches of a node object."""

    caches: dict[str, NodeCache] = field(default_factory=dict)


class Node(Struct, frozen=True):
    """A GKMCacheNode or ClusterGKMCacheNode, as far as it is counted."""

    metadata: ObjectMeta
    status: NodeStatus = field(default_factory=NodeStatus)


NODES = Resource(API_VERSION, "GKMCacheNode", "gkmcachenodes", namespaced=True, type=Node)
CLUSTER_NODES = Resource(API_VERSION, "ClusterGKMCacheNode", "clustergkmcachenodes", namespaced=False, type=Node)


class Contribution(NamedTuple):
    """One node's part in one cache; `failure` is the reason of a failure, empty where there is none."""

    digest: str
    ready: bool
    failure: str
    pods: int


def of_node(node: Node | None) -> Mapping[str, Contribution]:
    """Return {cache name: contribution} of a node object; of None, nothing."""
    if node is None:
        return {}
    return {name: of_cache(cache) for name, cache in node.status.caches.items()}


def of_cache(cache: NodeCache) -> Contribution:
    """Return the contribution of one cache on one node.

    Incompatible counts as failed, as in the GKM design (status.failedNodeConditions: ArchitectureMismatch).
    """
    failure = ""
    if cache.state in _FAILED:
        by_gpu = next((gpus.reason for gpus in cache.incompatible_gpus if gpus.reason), "")
        failure = cache.reason or by_gpu or cache.state
    return _shared(cache.digest or "", cache.state == READY, failure, len(cache.pods))


@lru_cache(maxsize=4096)
def _shared(digest: str, ready: bool, failure: str, pods: int) -> Contribution:  # noqa: FBT001 -- a field
    return Contribution(digest, ready, failure, pods)
