"""The GPUs that ResourceClaims (resource.k8s.io/v1) hold on nodes. Pure.

NVIDIA's DRA driver publishes the devices of a node in a pool with the name of the node: gpu-0 is a GPU, and
gpu-0-mig-19-0-1 a part of it; gpu-vfio-0 is a GPU for a virtual machine. A GPU of which a part is allocated is not free
as a whole, so it is one GPU in use, whoever has its other parts.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from copy import copy
from typing import Annotated, NamedTuple, Self, TypeVar

from msgspec import Meta, Struct, field, structs

DRIVER = "gpu.nvidia.com"
FOR_REQUEST = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that the scheduler makes for a pod that requests nvidia.com/gpu (KEP 5004)."""
_GPU = re.compile(r"gpu-(?:vfio-)?([0-9]{1,4})(?:-|$)")
_Text = Annotated[str, Meta(max_length=317)]


class ClaimMetadata(Struct, frozen=True, gc=False):
    """Name and namespace of a ResourceClaim, and whether the scheduler made it for a pod's GPU resource request."""

    name: _Text = ""
    namespace: _Text = ""
    annotations: dict[str, str] | None = None


class AllocatedDevice(Struct, frozen=True, rename="camel", gc=False):
    """A device that a ResourceClaim holds: its driver, pool and name.

    With `admin_access`, other claims can use its GPU as well.
    """

    driver: _Text = ""
    pool: _Text = ""
    device: _Text = ""
    admin_access: bool | None = None


class AllocatedDevices(Struct, frozen=True, gc=False):
    """The devices of an allocation: 32 at most, as the API has it."""

    results: Annotated[tuple[AllocatedDevice, ...], Meta(max_length=32)] | None = None


class Allocation(Struct, frozen=True, gc=False):
    """The status.allocation of a ResourceClaim: the devices that the scheduler allocated."""

    devices: AllocatedDevices = AllocatedDevices()


class Consumer(Struct, frozen=True, gc=False):
    """An object that may use a ResourceClaim, such as a pod."""

    resource: _Text = ""
    name: _Text = ""


class ClaimStatus(Struct, frozen=True, rename="camel", gc=False):
    """The allocation of a ResourceClaim, and its consumers: 256 at most, as the API has it."""

    allocation: Allocation | None = None
    reserved_for: Annotated[tuple[Consumer, ...], Meta(max_length=256)] | None = None


class ResourceClaim(Struct, frozen=True, gc=False):
    """A ResourceClaim. `held` lists the GPUs that it holds as text; `pods` are the pods that use them.

    The rest is dropped once it is decoded: a user fills annotations.
    """

    metadata: ClaimMetadata = field(default_factory=ClaimMetadata)
    status: ClaimStatus = ClaimStatus()
    kind: str = "ResourceClaim"
    held: str = ""
    pods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        nodes: dict[str, set[str]] = {}
        for node, device in _gpus(self):
            nodes.setdefault(node, set()).add(device)
        held = "\n".join(f"{node}={','.join(sorted(devices))}" for node, devices in sorted(nodes.items()))
        users = self.status.reserved_for or () if held else ()
        structs.force_setattr(self, "pods", tuple([one.name for one in users if one.resource == "pods"]))
        structs.force_setattr(self, "held", held)
        structs.force_setattr(self, "status", _NO_STATUS)
        structs.force_setattr(self, "metadata", structs.replace(self.metadata, annotations=None))

    @property
    def gpus(self) -> Iterator["ClaimedGpu"]:
        """Yield the GPUs that the claim holds."""
        for line in self.held.splitlines():
            node, _, devices = line.partition("=")
            yield from (ClaimedGpu(node, device) for device in devices.split(","))

    def outline(self, _why: str) -> Self:
        """Return a copy without pods: the GPUs are in use, but it is not known by which pod."""
        outlined = copy(self)
        structs.force_setattr(outlined, "pods", ())
        return outlined


_NO_STATUS = ClaimStatus()


class ClaimedGpu(NamedTuple):
    """A GPU on a node, named after its device."""

    node: str
    device: str


def _gpus(claim: ResourceClaim) -> Iterator[ClaimedGpu]:
    if (claim.metadata.annotations or {}).get(FOR_REQUEST) or claim.status.allocation is None:
        return
    for one in claim.status.allocation.devices.results or ():
        if one.driver == DRIVER and not one.admin_access:
            whole = _GPU.match(one.device)
            yield ClaimedGpu(one.pool, f"gpu-{whole[1]}" if whole else one.device)


H = TypeVar("H", bound=Hashable)


def gpus_by_holder(
    claims: Iterable[ResourceClaim], holder: Callable[[str, str], H | None]
) -> Mapping[H | None, Mapping[str, int]]:
    """Return how many GPUs each holder has on each node through ResourceClaims; None: other or several holders.

    `holder` names the holder of a pod, by its namespace and name. A GPU that several claims hold is one.
    """
    holders: dict[ClaimedGpu, set[H | None]] = {}
    for claim in claims:
        of = {holder(claim.metadata.namespace, name) for name in claim.pods} or {None}
        for gpu in claim.gpus:
            holders.setdefault(gpu, set()).update(of)
    found: dict[H | None, Counter[str]] = {}
    for (node, _), some in holders.items():
        found.setdefault(next(iter(some)) if len(some) == 1 else None, Counter())[node] += 1
    return found
