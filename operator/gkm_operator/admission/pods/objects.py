"""Decode an untrusted pod into the few fields that decisions need, within limits. Pure."""

from collections.abc import Iterator
from typing import Annotated

from gkm.api import pod_caches
from gkm.api.pod_specs import Container, PodSpec
from msgspec import Meta, Raw, Struct, field, structs

MAX_VOLUMES, MAX_ENTRIES, MAX_TERMS = 1024, 4096, 256


class Variable(Struct, frozen=True):
    """An environment variable of a container; `value` is None if it is absent or comes from another source."""

    name: str = ""
    value: str | None = None


class VolumeMount(Struct, frozen=True, rename="camel"):
    """An entry of a container's volumeMounts, reduced to its path."""

    mount_path: str = ""


class VolumeDevice(Struct, frozen=True, rename="camel"):
    """An entry of a container's volumeDevices: a block device at a path."""

    device_path: str = ""


class CSISource(Struct, frozen=True, rename="camel"):
    """The `csi` field of a volume: the driver, and the attributes that it gets."""

    driver: str = ""
    volume_attributes: dict[str, str] | None = None


class ImageSource(Struct, frozen=True):
    """The `image` field of a volume: the reference of an image."""

    reference: str = ""


class Volume(Struct, frozen=True):
    """A volume of a pod; `csi` and `image` are None for volumes of other kinds."""

    name: str = ""
    csi: CSISource | None = None
    image: ImageSource | None = None


class CacheContainer(Container, frozen=True, rename="camel"):
    """A container with its environment, mounts and block devices."""

    env: Annotated[tuple[Variable, ...], Meta(max_length=MAX_ENTRIES)] | None = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], Meta(max_length=MAX_ENTRIES)] | None = None
    volume_devices: Annotated[tuple[VolumeDevice, ...], Meta(max_length=MAX_ENTRIES)] | None = None

    @property
    def paths(self) -> Iterator[str]:
        """Yield the paths at which the container mounts volumes or block devices."""
        yield from (each.mount_path for each in self.volume_mounts or ())
        yield from (each.device_path for each in self.volume_devices or ())


class Expression(Struct, frozen=True):
    """A node affinity expression: a condition on one label of nodes."""

    key: str = ""
    operator: str = ""
    values: Annotated[tuple[str, ...], Meta(max_length=MAX_ENTRIES)] | None = None


class NodeTerm(Struct, frozen=True, rename="camel"):
    """A node affinity term. The scheduler ignores an empty term; otherwise all expressions must match."""

    match_expressions: Annotated[tuple[Expression, ...], Meta(max_length=MAX_ENTRIES)] | None = None
    match_fields: Annotated[tuple[Raw, ...], Meta(max_length=MAX_ENTRIES)] | None = None

    @property
    def empty(self) -> bool:
        """Return whether the term has no expression, so that it selects no node."""
        return not self.match_expressions and not self.match_fields


class NodeSelector(Struct, frozen=True, rename="camel"):
    """Node affinity terms; at least one must match."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Meta(max_length=MAX_TERMS)] | None = None


class PreferredNodes(Struct, frozen=True):
    """A preferred node affinity term, without its weight."""

    preference: NodeTerm = NodeTerm()


class NodeAffinity(Struct, frozen=True):
    """A pod's nodeAffinity: its required and its preferred terms."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: Annotated[tuple[PreferredNodes, ...], Meta(max_length=MAX_TERMS)] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, frozen=True, rename="camel"):
    """A pod's spec.affinity, reduced to nodeAffinity."""

    node_affinity: NodeAffinity | None = None


class PullSecret(Struct, frozen=True):
    """An entry of a pod's imagePullSecrets."""

    name: str = ""


class CachePodSpec(PodSpec, frozen=True, rename="camel"):
    """A pod specification with its volumes and its affinity; `host_users` is False for a pod in a user namespace."""

    containers: Annotated[tuple[CacheContainer, ...], Meta(max_length=1024)] | None = None
    volumes: Annotated[tuple[Volume, ...], Meta(max_length=MAX_VOLUMES)] | None = None
    affinity: Affinity | None = None
    host_users: bool | None = None
    node_selector: dict[str, str] | None = None
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Meta(max_length=MAX_ENTRIES)] | None = None


class CachePodMetadata(Struct, frozen=True):
    """The labels and annotations that GKM reads, and whether the pod has any others.

    `annotation_bytes` is the size of all annotations as the API server counts it: keys and values.
    """

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    has_annotations: bool = False
    annotation_bytes: int = 0

    def __post_init__(self) -> None:
        """Drop other annotations, because a hostile pod can have megabytes of them."""
        structs.force_setattr(self, "has_annotations", self.annotations is not None)
        structs.force_setattr(self, "annotation_bytes", sum(map(size, (self.annotations or {}).items())))
        for name, keys in (("labels", pod_caches.LABELS), ("annotations", pod_caches.ANNOTATIONS)):
            found = getattr(self, name) or {}
            structs.force_setattr(self, name, {key: found[key] for key in keys if key in found})

    def label(self, key: str) -> str | None:
        """Return the value of a label of the pod; None if absent."""
        return (self.labels or {}).get(key)

    def annotation(self, key: str) -> str | None:
        """Return the value of an annotation of the pod; None if absent."""
        return (self.annotations or {}).get(key)


def size(annotation: tuple[str, str]) -> int:
    """Return the size of an annotation in bytes: key and value."""
    return sum(len(text.encode(errors="surrogatepass")) for text in annotation)


class CachePod(Struct, frozen=True):
    """A pod in an admission request, reduced to the fields that decide about its caches."""

    metadata: CachePodMetadata
    spec: CachePodSpec = CachePodSpec()

    @property
    def containers(self) -> tuple[CacheContainer, ...]:
        """Return the containers of the pod without init containers."""
        return self.spec.containers or ()
