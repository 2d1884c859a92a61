"""The section `network` of the configuration: ComputeDomains for workloads on multi-node NVLink (MNNVL)."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.topology_settings import LabelKey

# Kubernetes, "Extended resources": a qualified name. A trailing `*` matches every name with the prefix.
_RESOURCE = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9*])?\Z"
_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"

# RBAC allows any path segment; Grove's chart writes `grove:system:grove-operator`.
_ROLE = r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,252}\Z"

ResourceGlob = Annotated[str, Meta(max_length=317, pattern=_RESOURCE)]
ObjectName = Annotated[str, Meta(max_length=253, pattern=_NAME)]
RoleName = Annotated[str, Meta(max_length=253, pattern=_ROLE)]


def _gpu_resources() -> list[ResourceGlob]:
    return ["nvidia.com/gpu", "nvidia.com/mig-*"]


def _gpu_device_classes() -> list[ObjectName]:
    return ["gpu.nvidia.com", "mig.nvidia.com"]


class Network(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The section `network` of the configuration: enrollment of workloads in ComputeDomains.

    `auto_mnnvl_enabled` gates enrollment only: the domains of enrolled workloads are scaled, protected and released
    with any value. `mnnvl_dialect` decides about a PodCliqueSet without annotations: `auto-mnnvl` enrolls it when it
    requests GPUs, `mnnvl-group` does not. A container requests GPUs by a resource in `gpu_resources`, or by a claim of
    a device class in `gpu_device_classes`. `placement` adds an affinity to one value of the node label
    `placement_label` for all pods of a domain. `grove_cluster_role` is the ClusterRole of the installed Grove operator,
    which shows whether Grove itself writes ComputeDomains.
    """

    auto_mnnvl_enabled: bool = field(default=False, name="autoMNNVLEnabled")
    mnnvl_dialect: Literal["auto-mnnvl", "mnnvl-group"] = "auto-mnnvl"
    gpu_resources: Annotated[list[ResourceGlob], Meta(max_length=32)] = field(default_factory=_gpu_resources)
    gpu_device_classes: Annotated[list[ObjectName], Meta(max_length=32)] = field(default_factory=_gpu_device_classes)
    placement: Literal["none", "preferred", "required"] = "none"
    placement_label: LabelKey = "gkm.io/fabric-domain"
    grove_cluster_role: RoleName = "grove:system:grove-operator"

    def __post_init__(self) -> None:
        """Refuse a configuration without any GPU resource or device class."""
        if not self.gpu_resources and not self.gpu_device_classes:
            raise ValueError("gpuResources and gpuDeviceClasses are both empty; name one GPU resource or device class")
