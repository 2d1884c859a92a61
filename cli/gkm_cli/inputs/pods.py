"""The fields of a pod that lead to its cache, and the drivers of its node. Texts are foreign: escape them to print."""

from typing import Any

from gkm.api.meta import ObjectMeta
from msgspec import Struct, field


class CSIVolume(Struct, frozen=True, rename="camel"):
    """The `csi` source of a pod's volume."""

    driver: str = ""
    volume_attributes: dict[str, str] | None = None
    read_only: bool = False


class ImageVolume(Struct, frozen=True):
    """The `image` source of a pod's volume."""

    reference: str = ""


class VolumeFacts(Struct, frozen=True):
    """A volume of a pod; `csi` and `image` are None for volumes of other kinds."""

    name: str
    csi: CSIVolume | None = None
    image: ImageVolume | None = None


class VolumeMountFacts(Struct, frozen=True, rename="camel"):
    """An entry of a container's volumeMounts."""

    name: str
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class VariableFacts(Struct, frozen=True, rename="camel"):
    """A variable of a container; the value is "" if Kubernetes fills it from elsewhere."""

    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ContainerFacts(Struct, frozen=True, rename="camel"):
    """A container or init container of a pod, reduced to its name, image, mounts and variables."""

    name: str = ""
    volume_mounts: tuple[VolumeMountFacts, ...] | None = None
    env: tuple[VariableFacts, ...] | None = None
    env_from: tuple[dict[str, Any], ...] | None = None
    image: str = ""


class PodSpecFacts(Struct, frozen=True, rename="camel"):
    """A pod's spec, reduced to the fields that lead to its cache."""

    node_name: str = ""
    host_users: bool | None = None
    volumes: tuple[VolumeFacts, ...] | None = None
    containers: tuple[ContainerFacts, ...] | None = None
    init_containers: tuple[ContainerFacts, ...] | None = None


class _Driver(Struct, frozen=True):
    name: str = ""


class _CSINodeSpec(Struct, frozen=True):
    drivers: tuple[_Driver, ...] | None = None


class RegisteredDrivers(Struct, frozen=True):
    """The CSI drivers that the kubelet of a node has registered (CSINode, storage.k8s.io/v1)."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _CSINodeSpec = _CSINodeSpec()

    @property
    def drivers(self) -> frozenset[str]:
        """Return the names of the registered drivers."""
        return frozenset(one.name for one in self.spec.drivers or ())
