"""The objects of a cluster that come in great number, reduced to the fields that decide."""

import re
from collections.abc import Iterable

from msgspec import Struct, field

from gkm_cli.doctor.findings import at, items_at, text_at
from gkm_cli.inputs.pods import VolumeFacts

NAME_LABEL = "app.kubernetes.io/name"
OUR_LABEL = "gkm.io/gpu"
"""The label by which an administrator says where GKM runs, beside the vendors' labels."""
NVIDIA_GPUS = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.*)", re.ASCII)
AMD_GPUS = re.compile(r"amd\.com/(gpu|[sdqc]px_nps\d)", re.ASCII)
"""The resources of the device plugins: whole GPUs, shared ones, and parts of them."""


class ManagedField(Struct, frozen=True):
    """An entry of managedFields, with the time at which the API server wrote it."""

    time: str | None = None


class InstalledMetadata(Struct, frozen=True, rename="camel"):
    """The metadata of an object, reduced to the fields that checks of an installation read."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    managed_fields: tuple[ManagedField, ...] = ()


class _LabeledMetadata(Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class _GroupMetadata(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    deletion_timestamp: str | None = None


class GroupObject(Struct, frozen=True):
    """The metadata of a GroupTemplate, Pool or TaskGroup."""

    metadata: _GroupMetadata


class _Phase(Struct, frozen=True):
    phase: str = ""


class LabeledPod(Struct, frozen=True):
    """A pod of a user with the label that names a cache."""

    metadata: _LabeledMetadata
    status: _Phase = _Phase()


class _Condition(Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _NodeInfo(Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class _NodeStatus(Struct, frozen=True, rename="camel"):
    capacity: dict[str, str] = field(default_factory=dict)
    conditions: tuple[_Condition, ...] = ()
    node_info: _NodeInfo = _NodeInfo()


class InstalledNode(Struct, frozen=True):
    """A Node, reduced to the fields that checks of an installation read."""

    metadata: InstalledMetadata
    status: _NodeStatus = field(default_factory=_NodeStatus)

    def is_true(self, condition: str) -> bool:
        """Return whether the node's condition of this type is True."""
        return any(one.type == condition and one.status == "True" for one in self.status.conditions)

    def has(self, gpus: re.Pattern[str]) -> bool:
        """Return whether the capacity of the node has GPUs under a resource name that matches the pattern."""
        return any(count != "0" and gpus.fullmatch(name) for name, count in self.status.capacity.items())


class _Container(Struct, frozen=True):
    name: str = ""
    image: str = ""


class _Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(Struct, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(Struct, frozen=True, rename={"image_id": "imageID"}):
    name: str = ""
    image_id: str = ""
    state: _State = _State()


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] | None = ()
    container_statuses: tuple[_ContainerStatus, ...] | None = ()


class _VolumesSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    volumes: tuple[VolumeFacts, ...] | None = None


class WaitingPod(Struct, frozen=True):
    """A pod of a user that is Pending, with its volumes."""

    metadata: InstalledMetadata
    spec: _VolumesSpec = _VolumesSpec()
    status: _PodStatus = _PodStatus()


class InstalledPod(Struct, frozen=True):
    """A pod of GKM's own programs."""

    metadata: InstalledMetadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def program(self) -> str:
        """Return the program that runs in the pod, such as gkm-agent."""
        return self.metadata.labels.get(NAME_LABEL, "")

    @property
    def is_ready(self) -> bool:
        """Return whether the pod is Ready, and not being deleted."""
        ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)
        return ready and self.metadata.deletion_timestamp is None

    @property
    def changed(self) -> str:
        """Return the latest of the times at which the pod was created, deleted, or became Ready or unready."""
        times = [one.last_transition_time or "" for one in self.status.conditions if one.type == "Ready"]
        return max([*times, self.metadata.creation_timestamp or "", self.metadata.deletion_timestamp or ""])

    @property
    def waits_for(self) -> str:
        """Return why a container waits, as kubelet states it; the phase of the pod if no container waits."""
        waiting = [one.state.waiting for one in self.status.container_statuses or () if one.state.waiting]
        texts = [f"{one.reason}: {one.message}" if one.message else one.reason for one in waiting]
        return texts[0] if texts else self.status.phase or "no status"


class _LeaseSpec(Struct, frozen=True, rename="camel"):
    renew_time: str | None = None


class NodeLease(Struct, frozen=True):
    """The Lease by which a kubelet states that its node is there."""

    metadata: InstalledMetadata
    spec: _LeaseSpec = _LeaseSpec()


def node_labels(daemon_set: object) -> frozenset[str]:
    """Return the keys of node labels in the required node affinity of a DaemonSet; empty if it takes every node."""
    affinity = at(daemon_set, "spec", "template", "spec", "affinity", "nodeAffinity")
    terms = items_at(affinity, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    return frozenset(text_at(one, "key") for term in terms for one in items_at(term, "matchExpressions"))


def gpus_of(daemon_set: object) -> re.Pattern[str]:
    """Return a pattern of the GPU resources' names of the vendor that the agent's DaemonSet is for."""
    volumes = items_at(daemon_set, "spec", "template", "spec", "volumes")
    return AMD_GPUS if any(at(one, "name") == "rocm" for one in volumes) else NVIDIA_GPUS


def named_classes(workloads: Iterable[object], name: str) -> list[str]:
    """Return the values, such as class names, that pods of these workloads have in the field `name` of their spec."""
    names = {text_at(one, "spec", "template", "spec", name) for one in workloads}
    return sorted(names - {""})


def tag_of(workload: object) -> str:
    """Return the tag of the image of a workload's first container, "" for an image by digest."""
    containers = items_at(workload, "spec", "template", "spec", "containers")
    _, _, last = text_at(containers[0], "image").rpartition("/") if containers else ("", "", "")
    return "" if "@" in last else last.partition(":")[2]
