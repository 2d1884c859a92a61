"""The fields of Pod (v1) that GKM reads, and a pod's requests as the scheduler computes them. Pure."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field

from gkm.topology.nodes import Resources, gpu_count, thousandths

_Text = Annotated[str, Meta(max_length=317)]
_TERMINAL_PHASES = ("Succeeded", "Failed")


class KubePodMetadata(Struct, frozen=True, gc=False):
    """The name and namespace of a pod."""

    name: _Text = ""
    namespace: _Text = ""


class ResourceRequirements(Struct, frozen=True, gc=False):
    """The requests and limits of a container. A limit without a request is the request."""

    requests: Resources | None = None
    limits: Resources | None = None


class ListedContainer(Struct, frozen=True, rename="camel", gc=False):
    """A container. An init container with the restart policy Always is a sidecar, which keeps running."""

    resources: ResourceRequirements | None = None
    restart_policy: _Text = ""


_Containers = Annotated[tuple[ListedContainer, ...], Meta(max_length=4096)]


class PodResourceClaim(Struct, frozen=True, gc=False):
    """A resource claim of a pod; only its existence is read."""


class KubePodSpec(Struct, frozen=True, rename="camel", gc=False):
    """The spec of a pod, reduced to its node, containers, overhead and claims."""

    node_name: _Text = ""
    containers: _Containers | None = None
    init_containers: _Containers | None = None
    overhead: Resources | None = None
    resource_claims: Annotated[tuple[PodResourceClaim, ...], Meta(max_length=4096)] | None = None


class KubePodStatus(Struct, frozen=True, gc=False):
    """The status of a pod, reduced to its phase."""

    phase: _Text = ""


class Pod(Struct, frozen=True, gc=False):
    """A Pod, reduced to the fields that tell what it takes up on its node."""

    metadata: KubePodMetadata = field(default_factory=KubePodMetadata)
    spec: KubePodSpec = field(default_factory=KubePodSpec)
    status: KubePodStatus = field(default_factory=KubePodStatus)
    kind: str = "Pod"


def occupies_node(pod: Pod) -> bool:
    """Return whether a pod takes up resources of a node: it is bound and has not ended. It may be terminating."""
    return bool(pod.spec.node_name) and pod.status.phase not in _TERMINAL_PHASES


class NodeLoad(NamedTuple):
    """The requests of pods on a node besides GPUs: CPUs and bytes in thousandths, and the number of pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0


def requested_gpus(pod: Pod) -> int:
    """Return the number of GPUs that a pod requests, as the scheduler computes it.

    Raises:
        ValueError: a quantity is invalid.
    """
    return _requested(pod, _gpus_of)


def requested_load(pod: Pod) -> NodeLoad:
    """Return the CPUs and memory that a pod requests, as the scheduler computes them, and 1 for the pod.

    Raises:
        ValueError: a quantity is invalid.
    """
    return NodeLoad(_requested(pod, _cpu_of), _requested(pod, _memory_of), 1)


def _requested(pod: Pod, amount: "_Amount") -> int:
    """Return what a pod requests of one resource.

    The sum of containers and sidecars, or the largest init container with the sidecars that start before it if that is
    more; plus overhead (k8s.io/component-helpers, resource, PodRequests).
    """
    spec = pod.spec
    together = sum(_of_container(container, amount) for container in spec.containers or ())
    sidecars = before = 0
    for container in spec.init_containers or ():
        requested = _of_container(container, amount)
        if container.restart_policy == "Always":
            sidecars += requested
            requested = 0
        before = max(before, sidecars + requested)
    overhead = None if spec.overhead is None else amount(spec.overhead)
    return max(together + sidecars, before) + (overhead or 0)


def _of_container(container: ListedContainer, amount: "_Amount") -> int:
    found = container.resources
    if found is None:
        return 0
    requested = None if found.requests is None else amount(found.requests)
    if requested is None and found.limits is not None:
        requested = amount(found.limits)
    return requested or 0


_Amount = Callable[[Resources], int | None]


def _gpus_of(resources: Resources) -> int | None:
    return None if resources.gpus is None else gpu_count(resources.gpus)


def _cpu_of(resources: Resources) -> int | None:
    return None if resources.cpu is None else thousandths(resources.cpu, "CPUs")


def _memory_of(resources: Resources) -> int | None:
    return None if resources.memory is None else thousandths(resources.memory, "bytes")
