"""GKMCache and ClusterGKMCache: a request for the kernel cache in an image on every node whose GPUs can use it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.meta import (
    API_VERSION,
    TRUE,
    Condition,
    Conditions,
    Count,
    HasConditions,
    ObjectMeta,
    ObservedGeneration,
    seconds_of,
)
from gkm.api.rollouts import RolloutPolicy, RolloutStatus
from gkm.api.signers import MAX_SIGNERS, Signer

DIGEST_PATTERN = "^sha256:[0-9a-f]{64}$"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""Names of objects in Kubernetes: a DNS-1123 subdomain. `.` and `..` would change the path of an API request."""
MAX_FAILED_NODES = 20
"""Node names for each reason in status.failedNodeConditions and incompatibleNodeConditions; a count stands for the
rest."""
HELD_BACK = "HeldBack"
"""The condition of a generation that made pods fail."""

SHORTEST_INTERVAL_SECONDS = 60.0
LONGEST_INTERVAL_SECONDS = 30 * 86_400.0
"""Bounds of updatePolicy.interval: each tracked cache causes requests to its registry; a month is almost never."""

Digest = Annotated[str, Meta(pattern=DIGEST_PATTERN, description="Digest of an image manifest.")]
Delivery = Literal["csi", "image"]
DateTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class LocalObjectReference(Struct, frozen=True):
    """A Secret with credentials for a registry."""

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=NAME_PATTERN)]
    """Name of the Secret."""


class UpdatePolicy(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whether GKM resolves a tag once or repeatedly."""

    mode: Literal["Pinned", "Track"] = "Pinned"
    """Pinned resolves a tag once. Track resolves it on an interval and follows it when verified."""
    interval: Annotated[
        str,
        Meta(
            max_length=16,
            pattern="^([0-9]+h)?([0-9]+m)?([0-9]+s)?$",
            extra_json_schema={
                "x-kubernetes-validations": [
                    {"rule": "self != '' && duration(self) >= duration('1m')", "message": "interval is at least 1m"}
                ]
            },
        ),
    ] = "15m"
    """Interval at which GKM resolves a tracked tag, for example 15m; at least 1m."""
    allow_rollback: bool = False
    """Follow a tracked tag to an image that is older than the present one. The age is the time of creation or signing.
    By default GKM does not follow such a tag."""

    @property
    def tracks(self) -> bool:
        """Return whether GKM follows the tag of the cache's image."""
        return self.mode == "Track"

    @property
    def seconds(self) -> float:
        """Return the interval between resolutions of the tag in seconds, clamped: an object may predate the bounds."""
        return max(min(float(seconds_of(self.interval)), LONGEST_INTERVAL_SECONDS), SHORTEST_INTERVAL_SECONDS)


class CacheSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The desired state of a GKMCache or ClusterGKMCache."""

    image: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=525,
            # distribution/reference: no scheme, no white space; the rest is parsed where it is used.
            pattern="^[a-zA-Z0-9][^\\s]*$",
            extra_json_schema={
                "x-kubernetes-validations": [
                    {
                        "rule": "!self.contains('://')",
                        "message": "image is a reference such as registry.example/team/cache:1, without a scheme",
                    }
                ]
            },
        ),
    ]
    """Reference of the cache image, with a tag and/or a digest."""
    image_pull_secrets: Annotated[list[LocalObjectReference], Meta(max_length=16)] = field(default_factory=list)
    """Secrets with credentials for the registry, in the namespace of the cache; for a ClusterGKMCache in gkm-system."""
    node_selector: Annotated[dict[str, str], Meta(max_length=16)] = field(default_factory=dict)
    """Nodes that get the cache; default: every node with a GPU."""
    update_policy: UpdatePolicy = field(default_factory=UpdatePolicy)
    """Whether GKM resolves a tag once, or on an interval."""
    rollout: RolloutPolicy | None = None
    """How many nodes pull the image at a time; default: all."""
    family: Annotated[str, Meta(max_length=253, pattern=f"{NAME_PATTERN}|^$")] = ""
    """Family of the cache: volumes that name it get a member. A cache belongs to the family of its name too.
    """
    generation: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Number of the content among the members of the family; a node prefers the largest one that fits its GPUs."""
    pinned: bool | None = None
    """Whether nodes prefer this member of the family to all others."""


class ImageVolume(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The verified image of a cache as kubelet mounts it (docs/decisions/0050-image-volumes.md)."""

    reference: Annotated[str, Meta(max_length=600)]
    """Repository and verified digest: the reference in the volumes of pods."""
    path: Annotated[str, Meta(max_length=1024)]
    """Where containers must see it: the files of the cache name this path."""
    gpus: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=256)] = field(default_factory=list)
    """Architectures of the GPUs that the labels of the image state: sm_90, gfx942."""


class CacheStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state of a cache; only the controller writes it."""

    observed_generation: ObservedGeneration = 0
    image: str = ""
    """spec.image from which the controller resolved resolvedDigest."""
    resolved_digest: Digest | None = None
    """Digest of the image manifest that spec.image resolves to; nodes pull exactly this digest."""
    signers: Annotated[list[Signer], Meta(max_length=MAX_SIGNERS)] = field(default_factory=list)
    """Signers whose signatures of resolvedDigest satisfy the policies."""
    image_created: DateTime | None = None
    """When the image was created, as its annotation, label or configuration states it."""
    image_signed: DateTime | None = None
    """Earliest time that a log or timestamp authority confirms for a valid signature."""
    size_bytes: Annotated[int, Meta(ge=0)] = 0
    """Size of the image in bytes, as its manifest states it; 0 while unknown."""
    runtime: Annotated[str, Meta(max_length=128)] = ""
    """Runtimes that wrote the cache, by the labels of the image, such as triton or vllm-triton; empty while unknown."""
    delivery: Delivery = "csi"
    """How pods get the files: csi, by volumes of csi.gkm.io, or image, by image volumes that kubelet pulls. With image,
    the totals are of pods with the reference in imageVolume, and no node reports."""
    image_volume: ImageVolume | None = None
    """The image for image volumes; absent unless resolvedDigest is verified and was built for a mount path."""
    total_nodes: Count = 0
    """Number of nodes that want the cache and report it."""
    ready_nodes: Count = 0
    """Number of nodes that respond and have the cache ready at resolvedDigest."""
    failed_nodes: Count = 0
    """Number of nodes on which the cache failed, or whose GPUs are lost."""
    incompatible_nodes: Count = 0
    """Number of nodes whose GPUs the cache does not fit; they are no failure, and Ready does not wait for them."""
    pods_using: Count = 0
    """Number of pod volumes on all nodes that have the cache mounted."""
    ready: str = ""
    """Ready nodes of those that are not incompatible, such as 8/10, for the printer column."""
    failed_node_conditions: dict[str, list[str]] = field(default_factory=dict)
    """Failed nodes by reason; at most 20 names for each reason, then a count."""
    incompatible_node_conditions: dict[str, list[str]] = field(default_factory=dict)
    """Incompatible nodes by reason; at most 20 names for each reason, then a count."""
    last_updated: DateTime | None = None
    """When the controller last changed this status."""
    rollout: RolloutStatus | None = None
    """Which nodes may pull the image, if spec.rollout bounds them."""
    conditions: Conditions = field(default_factory=list)
    """Verified: the signatures satisfy the policies. Ready: every node whose GPUs the cache fits has it. Error.
    NoCacheForHardware: pods wait for the cache or started without it on nodes whose GPUs it does not fit.
    Retained, of a cache that the controllers made of a capture: why it stays, or ends. HeldBack, of a generation of a
    family: it made pods fail more often than the one before it, and nodes take it last."""


class GKMCache(Struct, frozen=True, rename="camel", tag_field="kind", tag="GKMCache"):
    """A kernel cache for the pods of its namespace."""

    metadata: ObjectMeta
    spec: CacheSpec
    status: CacheStatus = field(default_factory=CacheStatus)
    api_version: str = API_VERSION


class ClusterGKMCache(Struct, frozen=True, rename="camel", tag_field="kind", tag="ClusterGKMCache"):
    """A kernel cache for pods of every namespace."""

    metadata: ObjectMeta
    spec: CacheSpec
    status: CacheStatus = field(default_factory=CacheStatus)
    api_version: str = API_VERSION


Cache = GKMCache | ClusterGKMCache

CACHE_RULES = (
    {
        "rule": "!(has(self.spec.updatePolicy) && has(self.spec.updatePolicy.mode)"
        " && self.spec.updatePolicy.mode == 'Track' && self.spec.image.contains('@'))",
        "message": "an image that is named by digest cannot be tracked: name a tag alone, or choose Pinned",
    },
)


def kind_of(cache: Cache) -> str:
    """Return the API kind, GKMCache or ClusterGKMCache, of a cache object or of its watched form."""
    return str(cache.__struct_config__.tag)


def is_held_back(cache: Cache) -> bool:
    """Return whether the cache's condition HeldBack is True.

    The cache made pods fail more often than the generation before it.
    """
    condition = cache.status.condition(HELD_BACK)
    return condition is not None and condition.status == TRUE


def condition_of(cache: Cache, kind: str) -> Condition | None:
    """Return a condition of a cache; None while the status is about an earlier value of spec.image."""
    return cache.status.condition(kind) if cache.status.image == cache.spec.image else None


def verified_digest(cache: Cache) -> str | None:
    """Return the verified digest of the image in the spec, which nodes may pull; None until the controller set it."""
    condition = condition_of(cache, "Verified")
    return cache.status.resolved_digest if condition is not None and condition.status == TRUE else None
