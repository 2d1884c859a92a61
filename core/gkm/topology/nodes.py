"""Node (v1) as far as it is read: what it has, where its labels say it is, whether pods may come."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.topology.quantities import Quantity
from gkm.topology.taints import Taint

# RFC 1123, section 2.1, as Kubernetes has it for the names of nodes.
Name = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Word = Annotated[str, Meta(max_length=317)]
_Labels = Annotated[dict[_Word, _Word], Meta(max_length=4096)]
_Taints = Annotated[tuple[Taint, ...], Meta(max_length=256)]


class Condition(Struct, frozen=True, gc=False):
    """A condition of a node."""

    type: _Word
    status: _Word


_Conditions = Annotated[tuple[Condition, ...], Meta(max_length=256)]


class Metadata(Struct, frozen=True, gc=False):
    """Name and labels."""

    name: Name
    labels: _Labels | None = None


class Spec(Struct, frozen=True, gc=False):
    """Who may come."""

    unschedulable: bool = False
    taints: _Taints | None = None


class Resources(Struct, frozen=True, gc=False):
    """GPUs among the resources of a node or a container."""

    gpus: Quantity | None = field(default=None, name="nvidia.com/gpu")


class Status(Struct, frozen=True, gc=False):
    """What it has, and how it is."""

    allocatable: Resources | None = None
    conditions: _Conditions | None = None


class Node(Struct, frozen=True, gc=False):
    """A node. Of the resources only nvidia.com/gpu is read: MIG devices and DRA claims are none of it."""

    metadata: Metadata
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)
    kind: str = "Node"

    @property
    def name(self) -> str:
        """Return its name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels."""
        return self.metadata.labels or {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Return its taints."""
        return self.spec.taints or ()

    @property
    def gpus(self) -> Quantity | None:
        """Return what its pods may have of GPUs, as it is written; None where it does not say it."""
        return self.status.allocatable.gpus if self.status.allocatable else None

    @property
    def ready(self) -> bool:
        """Return whether its kubelet says that it is ready; one that says nothing is not."""
        for entry in self.status.conditions or ():
            if entry.type == "Ready":
                return entry.status == "True"
        return False
