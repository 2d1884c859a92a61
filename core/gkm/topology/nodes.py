"""The fields of Node (v1) that GKM reads: labels, taints, allocatable resources and readiness.

Equal values of all nodes are stored once, and other fields not at all: 25,000 nodes with 40 labels and 7 conditions
each take 30 MiB instead of 220 (bench/packing_snapshot.py).
"""

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field, structs

from gkm.topology.quantities import Quantity
from gkm.topology.taints import Taint

# RFC 1123, section 2.1, as Kubernetes applies it to the names of nodes.
Name = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Word = Annotated[str, Meta(max_length=317)]
_Labels = Annotated[dict[_Word, _Word], Meta(max_length=4096)]
_Taints = Annotated[tuple[Taint, ...], Meta(max_length=256)]
_READY = "Ready"


T = TypeVar("T")


@lru_cache(maxsize=1 << 8)  # nearly always one of a few
def _deduplicated(value: T) -> T:
    """Return the first equal value, so that later ones need not be stored."""
    return value


class NodeCondition(Struct, frozen=True, gc=False):
    """A condition of a node."""

    type: _Word
    status: _Word


_Conditions = Annotated[tuple[NodeCondition, ...], Meta(max_length=256)]


class KubeNodeMetadata(Struct, frozen=True, gc=False):
    """Name and labels, and the uid: another one is another node of the same name."""

    name: Name
    labels: _Labels | None = None
    uid: _Word = ""

    def __post_init__(self) -> None:
        """Store equal keys and values of all nodes once: a string of 20 characters takes 69 bytes."""
        labels = self.labels
        if labels:
            values = map(intern, labels.values())
            structs.force_setattr(self, "labels", dict(zip(_deduplicated(tuple(labels)), values, strict=True)))


class KubeNodeSpec(Struct, frozen=True, gc=False):
    """Whether pods may be scheduled."""

    unschedulable: bool = False
    taints: _Taints | None = None

    def __post_init__(self) -> None:
        """Store equal taints of all nodes once."""
        if self.taints:
            structs.force_setattr(self, "taints", _deduplicated(self.taints))


class Resources(Struct, frozen=True, gc=False):
    """GPUs, CPUs and memory among the resources of a node or a container; a node also has slots for `pods`."""

    gpus: Quantity | None = field(default=None, name="nvidia.com/gpu")
    cpu: Quantity | None = None
    memory: Quantity | None = None
    pods: Quantity | None = None


class KubeNodeStatus(Struct, frozen=True, gc=False):
    """Allocatable resources, and the first condition of type Ready."""

    allocatable: Resources | None = None
    conditions: _Conditions | None = None

    def __post_init__(self) -> None:
        """Drop other conditions, and store equal values of all nodes once."""
        if self.allocatable is not None:
            structs.force_setattr(self, "allocatable", _deduplicated(self.allocatable))
        if self.conditions:
            ready = next(((entry,) for entry in self.conditions if entry.type == _READY), ())
            structs.force_setattr(self, "conditions", _deduplicated(ready))


class Node(Struct, frozen=True, gc=False):
    """A node. Of its GPUs, only nvidia.com/gpu is read: it includes no MIG devices and no DRA claims."""

    metadata: KubeNodeMetadata
    spec: KubeNodeSpec = field(default_factory=KubeNodeSpec)
    status: KubeNodeStatus = field(default_factory=KubeNodeStatus)
    kind: str = "Node"

    @property
    def name(self) -> str:
        """Return the name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels."""
        return self.metadata.labels or {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Return the taints."""
        return self.spec.taints or ()

    @property
    def gpus(self) -> Quantity | None:
        """Return the allocatable GPUs as a Kubernetes quantity, None without any."""
        return self.status.allocatable.gpus if self.status.allocatable else None

    @property
    def ready(self) -> bool:
        """Return whether its kubelet reports it ready; without a condition it is not."""
        conditions = self.status.conditions or ()
        return bool(conditions) and conditions[0].status == "True"
