"""The report of one node about its caches, reduced to small, hashable values that equal nodes share.

The input was written with the token of a node, which may be stolen: it is bounded before it is counted.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from gkm.api.meta import API_VERSION
from gkm.api.nodes import FAULTS_OF_INCOMPATIBLE, MAX_CAPTURED_IMAGES
from gkm.kube.resources import Resource
from msgspec import Struct, field, structs

READY = "Ready"
ANNOUNCED = "Announced"
MAX_CACHES = 4096
"""Limit of caches of one node object that are read: more than an honest agent can report in 384 KiB."""
UNKNOWN_REASON = "Unknown"

INCOMPATIBLE = "Incompatible"
_UNUSABLE = frozenset({"Failed", INCOMPATIBLE})
_PULLING = frozenset({"Downloading", "Extracting"})
_FAULTS_OF_THE_REGISTRY = frozenset({"RegistryUnavailable", "Unauthorized", "NotFound"})
_REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)


class NodeReport(NamedTuple):
    """The report of one node about one cache; `failure` is the reason of a failure, "" if absent.

    `misfit` is the reason why the cache fits no GPU of the node, "" if it fits: such a node is no failure. `unserved`:
    a pod there waits for a cache that fits no GPU, or started without it. `pulls`: the node pulls the image, waits
    until the controllers let it, or retries because the registry refuses all nodes. `leaving`: the node no longer wants
    the cache, and pods there still mount it.
    """

    digest: str
    ready: bool
    failure: str
    pods: int
    misfit: str = ""
    unserved: bool = False
    pulls: bool = False
    leaving: bool = False

    def is_unfinished(self, digest: str) -> bool:
        """Return whether the node does not have a digest ready yet, and reports no obstacle of its own.

        A report that is not about the digest is no obstacle: it is of the time before the digest was verified.
        """
        return not self.leaving and (self.pulls or self.digest != digest)


# `gc=False`: there are many of these objects, and they are not part of a reference cycle.


class ReportedIncompatibility(Struct, frozen=True, gc=False):
    """An entry of incompatibleGPUs in a node's report: the reason why some GPUs of the node cannot use a cache."""

    reason: str = ""


class ReportedPod(Struct, frozen=True, gc=False):
    """A pod that mounts the cache; it is only counted."""


class NodeCache(Struct, frozen=True, rename="camel", gc=False):
    """A node's report about one cache, reduced to the fields that the totals need."""

    state: str
    digest: str | None = None
    reason: str = ""
    incompatible_gpus: tuple[ReportedIncompatibility, ...] = field(default=(), name="incompatibleGPUs")
    pods: tuple[ReportedPod, ...] = ()
    pods_without_cache: int = 0
    pod_waits: bool = False


class ReportedCapture(Struct, frozen=True, rename="camel", gc=False):
    """A node's announcement of a capture (an image made from a pod's compiled kernels), reduced to image fields."""

    state: str = ""
    name: str = ""
    image: str = ""
    runtime: str = ""
    version: str = ""
    backend: str = ""
    arch: str = ""
    driver: str = ""
    content_digest: str | None = None
    family: str = ""
    base: str | None = None
    time: str | None = None


class ReportStatus(Struct, frozen=True, gc=False):
    """The reports in a node object's status: the first MAX_CACHES caches by name, and announced captures.

    `caches` is emptied after decoding: 10,000 nodes report the same 20 caches, and equal `reports` share one object (16
    MB instead of 77).
    """

    caches: dict[str, NodeCache] = field(default_factory=dict)
    reports: dict[str, NodeReport] = field(default_factory=dict)
    captures: tuple[ReportedCapture, ...] = ()

    def __post_init__(self) -> None:
        announced = (capture for capture in self.captures if capture.state == ANNOUNCED)
        structs.force_setattr(self, "captures", tuple(islice(announced, MAX_CAPTURED_IMAGES)))
        counted = self.caches if len(self.caches) <= MAX_CACHES else nsmallest(MAX_CACHES, self.caches)
        structs.force_setattr(self, "reports", {name: report_of(self.caches[name]) for name in counted})
        structs.force_setattr(self, "caches", {})


class ReportMeta(Struct, frozen=True, gc=False):
    """The metadata of a GKMCacheNode or ClusterGKMCacheNode, without labels and annotations."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = field(default="", name="resourceVersion")


class NodeObject(Struct, frozen=True, gc=False):
    """A GKMCacheNode or ClusterGKMCacheNode, reduced to the fields that the controllers read."""

    metadata: ReportMeta
    status: ReportStatus = field(default_factory=ReportStatus)


REPORTS = Resource(API_VERSION, "GKMCacheNode", "gkmcachenodes", namespaced=True, type=NodeObject)
CLUSTER_REPORTS = Resource(
    API_VERSION, "ClusterGKMCacheNode", "clustergkmcachenodes", namespaced=False, type=NodeObject
)


def reports_of(report: NodeObject | None) -> Mapping[str, NodeReport]:
    """Return the reports of a node object by cache name; {} if it is None."""
    return {} if report is None else report.status.reports


def report_of(cache: NodeCache) -> NodeReport:
    """Return the hashable report about one cache on one node; equal reports share one object."""
    reason = _reason(cache)
    unfit = cache.state == INCOMPATIBLE
    is_misfit = unfit and reason not in FAULTS_OF_INCOMPATIBLE
    report = NodeReport(
        cache.digest or "",
        cache.state == READY,
        "" if is_misfit else reason,
        len(cache.pods),
        misfit=reason if is_misfit else "",
        unserved=unfit and (cache.pods_without_cache > 0 or cache.pod_waits),
        pulls=_pulls(cache),
        leaving=cache.state == "Deleting",
    )
    return _shared(report)


def _reason(cache: NodeCache) -> str:
    """Return the reason of a cache that is Failed or Incompatible, "" in other states."""
    if cache.state not in _UNUSABLE:
        return ""
    by_gpu = next((gpus.reason for gpus in cache.incompatible_gpus if gpus.reason), "")
    reason = cache.reason or by_gpu or cache.state
    return reason if _REASON.fullmatch(reason) else UNKNOWN_REASON


def _pulls(cache: NodeCache) -> bool:
    """Return whether a node pulls, will pull without a change on the node, or retries because of the registry.

    A Pending cache with a reason waits for its node, for example for GPUs that are not readable. A registry that is
    away or refuses the login fails every node that tries: these must not make way for all others, which would return
    together.
    """
    if cache.state == "Failed":
        return cache.reason in _FAULTS_OF_THE_REGISTRY
    return cache.state in _PULLING or (cache.state == "Pending" and not cache.reason)


@lru_cache(maxsize=4096)
def _shared(report: NodeReport) -> NodeReport:
    return report
