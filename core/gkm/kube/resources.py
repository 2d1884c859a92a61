"""The collections of the API: group, version, plural, and the type of their objects."""

import builtins
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct

from gkm.api import computedomains, grove, hypernodes, imex, kernel_caches, resource_claims
from gkm.api.caches import ClusterGKMCache, GKMCache
from gkm.api.cluster_roles import ClusterRole
from gkm.api.hypernodes import HyperNodeObject, SchedulerTopology
from gkm.api.meta import API_VERSION
from gkm.api.nodes import ClusterGKMCacheNode, GKMCacheNode
from gkm.api.plans import PlacementPlan
from gkm.api.provider_trees import ProviderTree
from gkm.api.runs import Run
from gkm.api.task_groups import GroupTemplate, Pool, TaskGroup
from gkm.api.watched_caches import WatchedCache, WatchedClusterCache
from gkm.kube.errors import ApiError

T = TypeVar("T")
U = TypeVar("U")

BY_ADMINISTRATORS = "only cluster administrators, and what they install, write it"

_NO_NAMES = ("", ".", "..")
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A collection of the API and the Python type of its objects.

    Only the fields of `type` are decoded, so a client that needs fewer fields passes a smaller type:
    `GKMCACHENODES.of(MyThinNode)`.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T]
    metadata_only: bool = False
    """Whether the server sends only the metadata of the objects."""
    page_limit: int | None = None
    """Objects in one page of a list of large objects; None means `gkm.kube.api.PAGE_LIMIT`."""
    unbounded: str = ""
    """Why objects of this kind are not limited in size: no ordinary user writes them."""

    def of(self, kind: builtins.type[U]) -> "Resource[U]":
        """Return the same collection with another Python type for its objects."""
        name = (self.api_version, self.kind, self.plural)
        return Resource(*name, self.namespaced, kind, self.metadata_only, self.page_limit, self.unbounded)

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path of the collection (of one namespace, or of all), of an object, or of a subresource.

        Raises:
            ApiError: 404, for a name that no object can have and that changes the path: empty, `.` or `..`.
        """
        version = self.api_version.split("/", 1)
        parts = ["namespaces", namespace] if self.namespaced and namespace else []
        parts += [self.plural, *([] if name is None else [name]), *([subresource] if subresource else [])]
        for part in (*version, *parts):
            if part in _NO_NAMES:
                raise ApiError(_NOT_FOUND, "NotFound", f"no {self.kind} can have {part!r} in its path")
        root = "apis" if len(version) > 1 else "api"
        return "/".join(["", root, *(quote(part, safe="", errors="surrogatepass") for part in (*version, *parts))])


class ObjectName(Struct, frozen=True, gc=False):
    """The metadata of an object, reduced to its name."""

    name: str


class NamedObject(Struct, frozen=True, gc=False):
    """An object of which only the existence counts."""

    metadata: ObjectName


GKMCACHES = Resource(API_VERSION, "GKMCache", "gkmcaches", namespaced=True, type=GKMCache)
CLUSTERGKMCACHES = Resource(API_VERSION, "ClusterGKMCache", "clustergkmcaches", namespaced=False, type=ClusterGKMCache)
WATCHED_CACHES, WATCHED_CLUSTER_CACHES = GKMCACHES.of(WatchedCache), CLUSTERGKMCACHES.of(WatchedClusterCache)
GKMCACHENODES = Resource(API_VERSION, "GKMCacheNode", "gkmcachenodes", namespaced=True, type=GKMCacheNode)
CLUSTERGKMCACHENODES = Resource(
    API_VERSION, "ClusterGKMCacheNode", "clustergkmcachenodes", namespaced=False, type=ClusterGKMCacheNode
)
RUNS = Resource(API_VERSION, "Run", "runs", namespaced=True, type=Run)
GROUPTEMPLATES = Resource(API_VERSION, "GroupTemplate", "grouptemplates", namespaced=False, type=GroupTemplate)
POOLS = Resource(API_VERSION, "Pool", "pools", namespaced=False, type=Pool)
TASKGROUPS = Resource(API_VERSION, "TaskGroup", "taskgroups", namespaced=True, type=TaskGroup)
PLACEMENTPLANS = Resource(API_VERSION, "PlacementPlan", "placementplans", namespaced=True, type=PlacementPlan)
PROVIDER_TREES = Resource(
    API_VERSION,
    "ProviderTree",
    "providertrees",
    namespaced=False,
    type=ProviderTree,
    page_limit=4,
    unbounded="only the ServiceAccount of its provider writes it, 1.3 MB at most (gkm.api.provider_trees.MAX_PACKED)",
)
NEEDED: tuple[Resource[Any], ...] = (
    GKMCACHES,
    CLUSTERGKMCACHES,
    GKMCACHENODES,
    CLUSTERGKMCACHENODES,
    RUNS,
    PLACEMENTPLANS,
)
"""The kinds of GKM without which the controllers do not start."""

COMPUTEDOMAINS = Resource(
    computedomains.API_VERSION,
    computedomains.KIND,
    "computedomains",
    namespaced=True,
    type=computedomains.ComputeDomain,
)
PODCLIQUESETS = Resource(grove.API_VERSION, "PodCliqueSet", "podcliquesets", namespaced=True, type=grove.PodCliqueSet)
PODCLIQUES = Resource(grove.API_VERSION, "PodClique", "podcliques", namespaced=True, type=grove.PodClique)
CLAIM_TEMPLATES = Resource(
    resource_claims.API_VERSION,
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    namespaced=True,
    type=resource_claims.ResourceClaimTemplate,
)
WATCHED_CLAIM_TEMPLATES = CLAIM_TEMPLATES.of(resource_claims.WatchedClaimTemplate)
CLAIMS = Resource(
    resource_claims.API_VERSION, "ResourceClaim", "resourceclaims", namespaced=True, type=resource_claims.ResourceClaim
)
RESOURCE_SLICES = Resource(
    resource_claims.API_VERSION, "ResourceSlice", "resourceslices", namespaced=False, type=imex.PublishedDevices
)
CLUSTERROLES = Resource(
    "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False, type=ClusterRole
)
KERNEL_CACHES = Resource(
    kernel_caches.API_VERSION,
    kernel_caches.KERNEL_CACHE,
    "kernelcaches",
    namespaced=True,
    type=kernel_caches.KernelCache,
)
WATCHED_KERNEL_CACHES = replace(KERNEL_CACHES.of(kernel_caches.WatchedKernelCache), metadata_only=True)
KERNEL_CACHE_NODE_GROUPS = Resource(
    kernel_caches.API_VERSION,
    "KernelCacheNodeGroup",
    "kernelcachenodegroups",
    namespaced=False,
    type=kernel_caches.KernelCacheNodeGroup,
    unbounded=BY_ADMINISTRATORS,
)
HYPERNODES = Resource(
    hypernodes.API_VERSION,
    "HyperNode",
    "hypernodes",
    namespaced=False,
    type=HyperNodeObject,
    unbounded=BY_ADMINISTRATORS,
)
KUEUE_TOPOLOGIES, KUEUE_TOPOLOGIES_V1BETA2, KAI_TOPOLOGIES = (
    Resource(f"{group}/{version}", "Topology", "topologies", namespaced=False, type=SchedulerTopology)
    for group, version in (
        (hypernodes.KUEUE_GROUP, "v1beta1"),
        (hypernodes.KUEUE_GROUP, "v1beta2"),
        (hypernodes.KAI_GROUP, "v1alpha1"),
    )
)

Json = dict[str, Any]
DEVICE_CLASSES: Resource[Json] = Resource(
    resource_claims.API_VERSION, "DeviceClass", "deviceclasses", namespaced=False, type=Json
)
DEFINITIONS: Resource[Json] = Resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False, type=Json
)
CONFIGMAPS: Resource[Json] = Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=Json)
SERVICE_ACCOUNTS: Resource[Json] = Resource("v1", "ServiceAccount", "serviceaccounts", namespaced=True, type=Json)
DAEMON_SETS: Resource[Json] = Resource("apps/v1", "DaemonSet", "daemonsets", namespaced=True, type=Json)
CSI_DRIVERS: Resource[Json] = Resource("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False, type=Json)
CSI_NODES: Resource[Json] = Resource("storage.k8s.io/v1", "CSINode", "csinodes", namespaced=False, type=Json)
NODES: Resource[Json] = Resource("v1", "Node", "nodes", namespaced=False, type=Json)
EVENTS: Resource[Json] = Resource("events.k8s.io/v1", "Event", "events", namespaced=True, type=Json)
VALIDATING_WEBHOOKS: Resource[Json] = Resource(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
    type=Json,
)
MUTATING_WEBHOOKS: Resource[Json] = Resource(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    type=Json,
)
