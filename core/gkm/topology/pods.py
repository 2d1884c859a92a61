"""The fields of Pod (v1) that GKM reads, and the GPUs that a pod requests, as the scheduler counts them. Pure."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.topology.nodes import GpuResources
from gkm.topology.quantities import gpu_count

_Text = Annotated[str, Meta(max_length=317)]
_TERMINAL_PHASES = ("Succeeded", "Failed")


class KubePodMetadata(Struct, frozen=True, gc=False):
    """Name and namespace."""

    name: _Text = ""
    namespace: _Text = ""


class ResourceRequirements(Struct, frozen=True, gc=False):
    """The requests and limits of a container. A limit without a request counts as the request."""

    requests: GpuResources | None = None
    limits: GpuResources | None = None


class ListedContainer(Struct, frozen=True, rename="camel", gc=False):
    """A container. An init container with the restart policy Always is a sidecar, which keeps running."""

    resources: ResourceRequirements | None = None
    restart_policy: _Text = ""


_Containers = Annotated[tuple[ListedContainer, ...], Meta(max_length=4096)]


class KubePodSpec(Struct, frozen=True, rename="camel", gc=False):
    """The node and the containers of a pod."""

    node_name: _Text = ""
    containers: _Containers | None = None
    init_containers: _Containers | None = None
    overhead: GpuResources | None = None


class KubePodStatus(Struct, frozen=True, gc=False):
    """The phase of a pod."""

    phase: _Text = ""


class Pod(Struct, frozen=True, gc=False):
    """A pod."""

    metadata: KubePodMetadata = field(default_factory=KubePodMetadata)
    spec: KubePodSpec = field(default_factory=KubePodSpec)
    status: KubePodStatus = field(default_factory=KubePodStatus)
    kind: str = "Pod"


def occupies_node(pod: Pod) -> bool:
    """Return whether a pod uses resources of a node: it has one, and has not ended. It may be terminating."""
    return bool(pod.spec.node_name) and pod.status.phase not in _TERMINAL_PHASES


def requested_gpus(pod: Pod) -> int:
    """Return the GPUs that a pod requests.

    The sum of containers and sidecars, or the largest init container with the sidecars that start before it if that is
    more; plus overhead (k8s.io/component-helpers, resource, PodRequests).

    Raises:
        ValueError: a quantity is invalid.
    """
    spec = pod.spec
    together = sum(_container_gpus(container) for container in spec.containers or ())
    sidecars = before = 0
    for container in spec.init_containers or ():
        requested = _container_gpus(container)
        if container.restart_policy == "Always":
            sidecars += requested
            requested = 0
        before = max(before, sidecars + requested)
    return max(together + sidecars, before) + _gpus_of(spec.overhead)


def _container_gpus(container: ListedContainer) -> int:
    if container.resources is None:
        return 0
    requests, limits = container.resources.requests, container.resources.limits
    return _gpus_of(limits if requests is None or requests.gpus is None else requests)


def _gpus_of(resources: GpuResources | None) -> int:
    return 0 if resources is None or resources.gpus is None else gpu_count(resources.gpus)
