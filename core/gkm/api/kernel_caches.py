"""KernelCache and KernelCacheNodeGroup of KServe (serving.kserve.io/v1alpha1), reduced to what GKM reads and writes.

Read from KServe's types of autumn 2026. GKM writes only the status of KernelCaches.
"""

from typing import Annotated

from msgspec import Meta, Struct, field, structs

from gkm.api.meta import Condition, HasConditions, ObjectMeta, thin_metadata

API_VERSION = "serving.kserve.io/v1alpha1"
KERNEL_CACHE = "KernelCache"
DEFAULT_OCI_PATHS = ("io.vllm.cache", "io.triton.cache")
"""The directories of an image that GKM reads."""
WORKLOAD_FOOTPRINT = "gkm.io/kernel-cache-workload-footprint"
COMPATIBILITY_FOOTPRINT = "gkm.io/kernel-cache-compatibility-footprint"
"""Annotations of a GKMCache: the identity in the KernelCache that it was made of."""


class KServe(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The section `kserve` of the configuration: GKMCaches for KServe's KernelCaches.

    `write_status` lets GKM write the status of KernelCaches. KServe's own controllers write it too while its setting
    `kernelcache.enabled` is true: then set it to false.
    """

    enabled: bool = False
    write_status: bool = True


class CachePath(Struct, frozen=True, rename="camel"):
    """A directory of a KernelCache's image, and the path where a container has it; "" if KServe finds out by itself."""

    container_name: str = ""
    container_path: str = ""
    oci_path: str = field(default=DEFAULT_OCI_PATHS[0], name="ociPath")


class Footprints(Struct, frozen=True, rename="camel"):
    """Digests of what a KernelCache depends on; "" for an image of a runtime that has no fixed digest."""

    workload_footprint: str = ""
    compatibility_footprint: str = ""


class CacheIdentity(Struct, frozen=True):
    """The identity of a KernelCache: the workload and hardware that it was built for, as digests."""

    footprints: Footprints = Footprints()


class Artifact(Struct, frozen=True, rename="camel"):
    """The image of a KernelCache, and its content."""

    image_reference: str
    cache_paths: Annotated[tuple[CachePath, ...], Meta(max_length=64)] = ()
    identity: CacheIdentity = CacheIdentity()


class NodeGroupRef(Struct, frozen=True):
    """The name of a KernelCacheNodeGroup; "" if absent."""

    name: str = ""


class KernelCacheSpec(Struct, frozen=True, rename="camel"):
    """Desired state of a KernelCache."""

    artifact: Artifact
    node_group_ref: NodeGroupRef = NodeGroupRef()


class KernelCacheVerification(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of verifying the image of a KernelCache."""

    mode: str
    state: str
    verified: bool
    reason: str = ""
    message: str = ""
    verified_at: str = ""


class KernelCacheCounts(Struct, frozen=True, rename="camel"):
    """Numbers of nodes in the status of a KernelCache, by state."""

    node_count: int = 0
    nodes_ready: int = 0
    nodes_preparing: int = 0
    nodes_error: int = 0


class KernelCacheUsage(Struct, frozen=True, rename="camel"):
    """The number of pods that use a KernelCache; GKM does not write their list."""

    total_pods_using: int = 0


class KernelCacheStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """The status of a KernelCache, as far as GKM writes it."""

    state: str = ""
    verification: KernelCacheVerification | None = None
    usage: KernelCacheUsage | None = None
    counts: KernelCacheCounts | None = None
    conditions: list[Condition] = field(default_factory=list)


class KernelCache(Struct, frozen=True):
    """A KernelCache: a finished kernel cache, as KServe describes it."""

    metadata: ObjectMeta
    spec: KernelCacheSpec
    status: KernelCacheStatus = field(default_factory=KernelCacheStatus)


class WatchedKernelCache(Struct, frozen=True):
    """A KernelCache as GKM's watch holds it: its name, and no field that a user may fill."""

    metadata: ObjectMeta

    def __post_init__(self) -> None:
        """Drop labels, annotations, owners and finalizers."""
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata))


class NodeGroupSpec(Struct, frozen=True, rename="camel"):
    """The spec of a KernelCacheNodeGroup: which nodes it selects."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, object]] = field(default_factory=list)


class KernelCacheNodeGroup(Struct, frozen=True):
    """A KernelCacheNodeGroup: a group of nodes that prepare caches, as GKM's watch holds it."""

    metadata: ObjectMeta
    spec: NodeGroupSpec = field(default_factory=NodeGroupSpec)

    def __post_init__(self) -> None:
        """Drop labels, annotations, owners and finalizers."""
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata))
