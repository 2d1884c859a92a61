"""What one node contributes to the status of its caches: small, hashable, shared between nodes that are alike.

What is read here was written with the token of a node, which may be stolen: it is bounded before it is counted.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from heapq import nsmallest
from typing import NamedTuple

from gkm.api.meta import API_VERSION
from gkm.kube.resources import Resource
from msgspec import Struct, field, structs

READY = "Ready"
MAX_CACHES = 4096
"""Caches of one node object that count: more than an honest agent's 384 KiB hold (design/aggregation.md)."""
UNKNOWN_REASON = "Unknown"

INCOMPATIBLE = "Incompatible"
_FAILED = frozenset({"Failed", INCOMPATIBLE})
_REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)


class NodeReport(NamedTuple):
    """One node's part in one cache; `failure` is the reason of a failure, empty where there is none.

    `incompatible` failures are those of a cache that fits no GPU of the node: no retry mends them.
    """

    digest: str
    ready: bool
    failure: str
    pods: int
    incompatible: bool = False


# `gc=False`: there are many of these, and none refers to anything that refers to it.


class ReportedIncompatibility(Struct, frozen=True, gc=False):
    """Why some GPUs of a node cannot use a cache."""

    reason: str = ""


class ReportedPod(Struct, frozen=True, gc=False):
    """A pod that has the cache mounted; it is counted, and nothing of it is kept."""


class NodeCache(Struct, frozen=True, rename="camel", gc=False):
    """One cache on one node, as far as it is counted."""

    state: str
    digest: str | None = None
    reason: str = ""
    incompatible_gpus: tuple[ReportedIncompatibility, ...] = field(default=(), name="incompatibleGPUs")
    pods: tuple[ReportedPod, ...] = ()


class ReportStatus(Struct, frozen=True, gc=False):
    """The caches of a node object. Kept is what they contribute, MAX_CACHES at most, the first by name.

    `caches` is empty when it has been read: 10,000 nodes say the same of 20 caches, and `parts` share what is alike
    (16 MB instead of 77).
    """

    caches: dict[str, NodeCache] = field(default_factory=dict)
    parts: dict[str, NodeReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counted = self.caches if len(self.caches) <= MAX_CACHES else nsmallest(MAX_CACHES, self.caches)
        structs.force_setattr(self, "parts", {name: report_of(self.caches[name]) for name in counted})
        structs.force_setattr(self, "caches", {})


class ReportMeta(Struct, frozen=True, gc=False):
    """Which node object; labels and annotations are not kept."""

    name: str
    namespace: str = ""


class NodeObject(Struct, frozen=True, gc=False):
    """A GKMCacheNode or ClusterGKMCacheNode, as far as it is counted."""

    metadata: ReportMeta
    status: ReportStatus = field(default_factory=ReportStatus)


REPORTS = Resource(API_VERSION, "GKMCacheNode", "gkmcachenodes", namespaced=True, type=NodeObject)
CLUSTER_REPORTS = Resource(
    API_VERSION, "ClusterGKMCacheNode", "clustergkmcachenodes", namespaced=False, type=NodeObject
)


def reports_of(report: NodeObject | None) -> Mapping[str, NodeReport]:
    """Return {cache name: contribution} of a node object; of None, nothing."""
    return {} if report is None else report.status.parts


def report_of(cache: NodeCache) -> NodeReport:
    """Return the contribution of one cache on one node.

    Incompatible counts as failed, as in the GKM design (status.failedNodeConditions: ArchitectureMismatch).
    """
    failure = ""
    if cache.state in _FAILED:
        by_gpu = next((gpus.reason for gpus in cache.incompatible_gpus if gpus.reason), "")
        said = cache.reason or by_gpu or cache.state
        failure = said if _REASON.fullmatch(said) else UNKNOWN_REASON
    part = NodeReport(
        cache.digest or "", cache.state == READY, failure, len(cache.pods), incompatible=cache.state == INCOMPATIBLE
    )
    return _shared(part)


@lru_cache(maxsize=4096)
def _shared(part: NodeReport) -> NodeReport:
    return part
