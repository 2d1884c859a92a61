"""GKMCacheNode and ClusterGKMCacheNode: the report of one node about its GPUs and its caches."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime, Digest
from gkm.api.errors import Reason
from gkm.api.meta import API_VERSION, Conditions, ObjectMeta, ObservedGeneration

NODE_LABEL = "gkm.node"
LAST_UPDATED_ANNOTATION = "gkm.io/lastUpdated"
CURRENT_CACHES_ANNOTATION = "gkm.io/currentCaches"

GPUIndex = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})]
StateName = Annotated[str, Meta(pattern="^(Pending|Downloading|Extracting|Ready|Incompatible|Failed|Deleting)$")]

FAULTS_OF_INCOMPATIBLE = frozenset({Reason.GPU_LOST, Reason.METADATA_INVALID, Reason.METADATA_MISSING})
"""Reasons of the state Incompatible that are faults of a node or an image; with all others the cache is for other
GPUs, which is normal in a cluster with different ones."""

CapturedState = Annotated[str, Meta(pattern="^(Waiting|Announced|Duplicate|Refused)$")]
MAX_CAPTURED_IMAGES = 32
"""Captures in the status of one namespace on one node, the newest."""


class GPUFabric(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The NVLink attachment of a GPU, as NVML reports it."""

    cluster_uuid: Annotated[str, Meta(max_length=64)] = field(default="", name="clusterUUID")
    """UUID of the NVLink cluster; empty outside of one."""
    clique_id: int = field(default=0, name="cliqueID")
    """Number of the NVLink partition inside the cluster."""
    state: Annotated[str, Meta(max_length=64)] = ""
    """State of the registration with the fabric manager, as NVML names it."""
    status: Annotated[str, Meta(max_length=64)] = ""
    """Result of that registration, as NVML names it."""
    health: Annotated[str, Meta(max_length=256)] = ""
    """NVML's health mask of the GPU's fabric, in words."""


class GPUGroup(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Identical GPUs of a node; `ids` are NVML indices."""

    ids: list[GPUIndex]
    """Indices of the GPUs on the node, as the vendor library counts them."""
    gpu_type: Annotated[str, Meta(max_length=128)] = ""
    """Model of the GPUs, as the driver names it."""
    driver_version: Annotated[str, Meta(max_length=64)] = ""
    """Version of the kernel driver."""
    backend: Annotated[str, Meta(max_length=16)] = ""
    """Backend that a cache must be built for: cuda or hip."""
    arch: Annotated[str, Meta(max_length=32)] = ""
    """Architecture that a cache must be built for, such as sm_90 or gfx942."""
    warp_size: int = 0
    """Threads of one warp (CUDA) or wavefront (HIP)."""
    memory_mib: Annotated[int, Meta(ge=0)] = field(default=0, name="memoryMiB")
    """Memory of each GPU in MiB."""
    fabric: GPUFabric | None = None


class CompatibleGPUs(Struct, frozen=True):
    """The indices of a node's GPUs that can use a cache."""

    ids: list[GPUIndex]
    """Indices of the GPUs on the node."""


class IncompatibleGPUs(Struct, frozen=True):
    """GPUs that cannot use a cache: one entry for all GPUs with the same reason and message."""

    ids: list[GPUIndex]
    """Indices of the GPUs on the node."""
    reason: Annotated[str, Meta(max_length=64)]
    """Reason why they cannot use the cache, as one word (docs/reference/reasons.md)."""
    message: Annotated[str, Meta(max_length=1024)]
    """Reason why they cannot use the cache, as a sentence."""


class RuntimeMisses(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The entries of one runtime that the program of a pod compiled although the cache was mounted."""

    compiled: Annotated[int, Meta(ge=0)] = 0
    """Number of entries that the program compiled into its private layer."""
    mounted: Annotated[int, Meta(ge=0)] = 0
    """Number of entries in the cache."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Compiled entries by the reason why the cache did not have them (docs/reference/reasons.md)."""
    difference: Annotated[str, Meta(max_length=200)] = ""
    """First factor of the key that differs between the cache and the pod, where the runtime states its factors. The pod
    can have written any part of it."""


class KernelMisses(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The kernels and compiled graphs that the program of a pod compiled although the cache was mounted."""

    kernels: Annotated[int, Meta(ge=0)] = 0
    """Number of kernels and graphs that the program compiled into its private layer, of all runtimes."""
    mounted_kernels: Annotated[int, Meta(ge=0)] = 0
    """Number of kernels and graphs in the cache. The hits are unknown, and only these can hit."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Compiled kernels by the reason why the cache did not have them (docs/reference/reasons.md)."""
    at_least: bool = False
    """Whether the numbers are lower bounds, because the volume exceeds what GKM reads."""
    runtimes: dict[str, RuntimeMisses] = field(default_factory=dict)
    """The same by runtime, such as triton."""


class PodUse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that has a cache mounted on this node."""

    namespace: str
    """Namespace of the pod."""
    name: str
    """Name of the pod."""
    volume_id: str
    """ID that kubelet gave the volume."""
    digest: Digest
    misses: KernelMisses | None = None
    """Kernels that the program compiled; absent until kubelet measured the volume and found files in it."""


def _written_empty() -> list[Any]:
    """Return an empty list that is written as []: msgspec omits the default only if the factory is `list` itself."""
    return []


class NodeCacheStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one cache on one node."""

    state: StateName
    """State of the cache on the node. Deleting: the node no longer wants the cache, and pods there still mount it."""
    digest: Digest | None = None
    compatible_gpus: list[CompatibleGPUs] = field(default_factory=_written_empty, name="compatibleGPUs")
    """GPUs of this node that can use the cache."""
    incompatible_gpus: list[IncompatibleGPUs] = field(default_factory=_written_empty, name="incompatibleGPUs")
    """GPUs of this node that cannot use the cache, with the reasons."""
    reason: Annotated[str, Meta(max_length=64)] = ""
    """Reason for this state, as one word (docs/reference/reasons.md)."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Reason for this state, as a sentence."""
    size_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the extracted files on the disk of the node."""
    progress: Annotated[int, Meta(ge=0, le=100)] = 0
    """Percentage of the image that the agent has fetched and extracted."""
    pods: list[PodUse] = field(default_factory=list)
    """Pods of this node that have the cache mounted; at most 500."""
    pods_without_cache: Annotated[int, Meta(ge=0)] = 0
    """Volumes of pods that started without the cache (ifUnavailable), while it fits no GPU of this node."""
    pod_waits: bool = False
    """Whether a pod waits for the cache, although it fits no GPU of this node."""
    chosen: bool = False
    """Whether pods of this node that name the family of the cache get this member."""
    next_try: DateTime | None = None
    """When the agent retries a failed cache."""
    last_updated: DateTime | None = None
    """When the state of the cache on this node last changed."""


class CapturedImage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A capture of a pod's compiled files on one node, and the image that the agent made of it."""

    volume: Annotated[str, Meta(max_length=128)]
    """ID that kubelet gave the volume of the pod."""
    state: CapturedState
    """State of the capture. Announced: the signed image is in the registry."""
    pod: Annotated[str, Meta(max_length=253)] = ""
    """Name of the pod that wrote the files."""
    time: DateTime | None = None
    """When the pod started to use the volume."""
    name: Annotated[str, Meta(max_length=253)] = ""
    """Name that a GKMCache of this capture should have; equal contents have equal names."""
    image: Annotated[str, Meta(max_length=525)] = ""
    """Reference of the image, by digest."""
    runtime: Annotated[str, Meta(max_length=64)] = ""
    """Runtimes that compiled the files, such as triton or vllm-triton."""
    version: Annotated[str, Meta(max_length=32)] = ""
    """Version of the runtime, as the files state it."""
    backend: Annotated[str, Meta(max_length=16)] = ""
    """Backend of the GPUs of the node, as measured."""
    arch: Annotated[str, Meta(max_length=32)] = ""
    """Architecture of the GPUs of the node, as measured."""
    driver: Annotated[str, Meta(max_length=64)] = ""
    """Version of the kernel driver of the node, as measured."""
    content_digest: Digest | None = None
    """Digest of the files, their paths and the hardware."""
    family: Annotated[str, Meta(max_length=253)] = ""
    """Name of the cache in the volume of the pod, which the capture joins; empty if it joins no cache."""
    base: Digest | None = None
    """Digest of the image that this image extends; absent if it extends no image."""
    files: Annotated[int, Meta(ge=0)] = 0
    """Number of the files in the image."""
    size_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the files in the image."""
    reason: Annotated[str, Meta(max_length=64)] = ""
    """Reason why the capture was refused or waits, as one word (docs/reference/reasons.md)."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Reason why the capture was refused or waits, as a sentence."""


class NodeSpec(Struct, frozen=True, rename="camel"):
    """The node that the object describes."""

    node_name: Annotated[str, Meta(min_length=1, max_length=253)]
    """Name of the Node."""


class NodeStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state, as the agent of the node reports it."""

    observed_generation: ObservedGeneration = 0
    gpus: list[GPUGroup] = field(default_factory=list)
    """GPUs of the node, in groups of identical ones."""
    caches: dict[str, NodeCacheStatus] = field(default_factory=dict)
    """Caches on the node by the name of their GKMCache or ClusterGKMCache."""
    captures: list[CapturedImage] = field(default_factory=list)
    """Captures of pods of the namespace, the newest first; at most 32."""
    conditions: Conditions = field(default_factory=list)
    """Ready: every cache that fits the node is ready there."""


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
