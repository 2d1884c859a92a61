"""GKMCacheNode and ClusterGKMCacheNode: what one node says about its GPUs and its caches."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime, Digest
from gkm.api.meta import API_VERSION, ObjectMeta

NODE_LABEL = "gkm.node"
LAST_UPDATED_ANNOTATION = "gkm.io/lastUpdated"
CURRENT_CACHES_ANNOTATION = "gkm.io/currentCaches"

GPUIndex = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})]
StateName = Annotated[str, Meta(pattern="^(Pending|Downloading|Extracting|Ready|Incompatible|Failed|Deleting)$")]


class GPUFabric(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a GPU is attached to NVLink, as NVML says it."""

    cluster_uuid: Annotated[str, Meta(max_length=64)] = field(default="", name="clusterUUID")
    clique_id: int = field(default=0, name="cliqueID")
    state: Annotated[str, Meta(max_length=64)] = ""
    status: Annotated[str, Meta(max_length=64)] = ""
    health: Annotated[str, Meta(max_length=256)] = ""


class GPUGroup(Struct, frozen=True, rename="camel", omit_defaults=True):
    """GPUs of a node that are alike; `ids` are NVML indices."""

    ids: list[GPUIndex]
    gpu_type: Annotated[str, Meta(max_length=128)] = ""
    driver_version: Annotated[str, Meta(max_length=64)] = ""
    backend: Annotated[str, Meta(max_length=16)] = ""
    arch: Annotated[str, Meta(max_length=32)] = ""
    warp_size: int = 0
    memory_mib: Annotated[int, Meta(ge=0)] = field(default=0, name="memoryMiB")
    fabric: GPUFabric | None = None


class CompatibleGPUs(Struct, frozen=True):
    """GPUs that can use a cache."""

    ids: list[GPUIndex]


class IncompatibleGPUs(Struct, frozen=True):
    """GPUs that cannot use a cache, and why: one entry for GPUs of the same reason and message."""

    ids: list[GPUIndex]
    reason: Annotated[str, Meta(max_length=64)]
    message: Annotated[str, Meta(max_length=1024)]


class PodUse(Struct, frozen=True, rename="camel"):
    """A pod that has a cache mounted on this node."""

    namespace: str
    name: str
    volume_id: str
    digest: Digest


class NodeCacheStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One cache on one node."""

    state: StateName
    digest: Digest | None = None
    compatible_gpus: list[CompatibleGPUs] = field(default_factory=list, name="compatibleGPUs")
    incompatible_gpus: list[IncompatibleGPUs] = field(default_factory=list, name="incompatibleGPUs")
    reason: Annotated[str, Meta(max_length=64)] = ""
    message: Annotated[str, Meta(max_length=1024)] = ""
    size_bytes: Annotated[int, Meta(ge=0)] = 0
    progress: Annotated[int, Meta(ge=0, le=100)] = 0
    pods: list[PodUse] = field(default_factory=list)
    next_try: DateTime | None = None
    last_updated: DateTime | None = None


class NodeSpec(Struct, frozen=True, rename="camel"):
    """Which node this is about."""

    node_name: Annotated[str, Meta(min_length=1, max_length=253)]


class NodeStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the agent of the node says."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    gpus: list[GPUGroup] = field(default_factory=list)
    caches: dict[str, NodeCacheStatus] = field(default_factory=dict)


class GKMCacheNode(Struct, frozen=True, rename="camel", tag_field="kind", tag="GKMCacheNode"):
    """The caches of one namespace on one node."""

    metadata: ObjectMeta
    spec: NodeSpec
    status: NodeStatus = field(default_factory=NodeStatus)
    api_version: str = API_VERSION


class ClusterGKMCacheNode(Struct, frozen=True, rename="camel", tag_field="kind", tag="ClusterGKMCacheNode"):
    """The cluster-wide caches on one node."""

    metadata: ObjectMeta
    spec: NodeSpec
    status: NodeStatus = field(default_factory=NodeStatus)
    api_version: str = API_VERSION


CacheNode = GKMCacheNode | ClusterGKMCacheNode
