"""Pod (v1) as far as it is read, and how many GPUs it takes of its node, as the scheduler counts them. Pure."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.topology.nodes import GpuResources
from gkm.topology.quantities import gpu_count

_Text = Annotated[str, Meta(max_length=317)]
_TERMINAL_PHASES = ("Succeeded", "Failed")


class KubePodMetadata(Struct, frozen=True, gc=False):
    """Whose it is."""

    name: _Text = ""
    namespace: _Text = ""


class ResourceRequirements(Struct, frozen=True, gc=False):
    """What a container asks for. GPUs that are only limited are asked for just so."""

    requests: GpuResources | None = None
    limits: GpuResources | None = None


class Container(Struct, frozen=True, rename="camel", gc=False):
    """A container; among init containers one that always restarts is a sidecar, and stays."""

    resources: ResourceRequirements | None = None
    restart_policy: _Text = ""


_Containers = Annotated[tuple[Container, ...], Meta(max_length=4096)]


class KubePodSpec(Struct, frozen=True, rename="camel", gc=False):
    """Where it runs, and what."""

    node_name: _Text = ""
    containers: _Containers | None = None
    init_containers: _Containers | None = None
    overhead: GpuResources | None = None


class KubePodStatus(Struct, frozen=True, gc=False):
    """How far it is."""

    phase: _Text = ""


class Pod(Struct, frozen=True, gc=False):
    """A pod."""

    metadata: KubePodMetadata = field(default_factory=KubePodMetadata)
    spec: KubePodSpec = field(default_factory=KubePodSpec)
    status: KubePodStatus = field(default_factory=KubePodStatus)
    kind: str = "Pod"


def occupies_node(pod: Pod) -> bool:
    """Return whether it takes anything of a node: it has one, and is not over. One that is being deleted still does."""
    return bool(pod.spec.node_name) and pod.status.phase not in _TERMINAL_PHASES


def requested_gpus(pod: Pod) -> int:
    """Return the GPUs that a pod takes of its node.

    The larger of what runs together in the end (containers and sidecars) and the largest init container together with
    the sidecars that start before it; overhead comes on top (k8s.io/component-helpers, resource, PodRequests).

    Raises:
        ValueError: a quantity is none.
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


def _container_gpus(container: Container) -> int:
    if container.resources is None:
        return 0
    requests, limits = container.resources.requests, container.resources.limits
    return _gpus_of(limits if requests is None or requests.gpus is None else requests)


def _gpus_of(resources: GpuResources | None) -> int:
    return 0 if resources is None or resources.gpus is None else gpu_count(resources.gpus)
