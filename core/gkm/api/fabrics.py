"""NodeFabric: the NVLink, InfiniBand and Ethernet connections of one node, as its agent reads them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime
from gkm.api.meta import API_VERSION, Conditions, ObjectMeta, ObservedGeneration
from gkm.api.nodes import NodeSpec

MAX_PORTS = 512
"""InfiniBand ports, and Ethernet interfaces, of one node: about 100 kB of an object, and more than any machine has."""

SURVEY_PREFIX = "gkm-ibnetdiscover-"
"""The ConfigMap with the output of ibnetdiscover on a node has this and the node's name as its name."""
SURVEY_KEY = "ibnetdiscover.gz.b64"
MAX_SURVEY_BYTES = 700_000
"""Compressed size. In base64 it is 0.93 MB, and a ConfigMap has at most 1 MiB (core/v1, MaxSecretSize)."""

# A uuid as RFC 4122 writes it; a clique is an unsigned 32-bit number (nvml.h, nvmlGpuFabricInfo_v4_t).
UUID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
DOMAIN_PATTERN = f"{UUID_PATTERN[:-1]}[.][0-9]{{1,10}}$"
GUID_PATTERN = "^[0-9a-f]{16}$"
# A name in sysfs or of a network interface (IB_DEVICE_NAME_MAX is 64, IFNAMSIZ 16), as one path component.
DEVICE_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,62}$"

Unsigned32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1, extra_json_schema={"format": "int64"})]
GUID = Annotated[str, Meta(pattern=GUID_PATTERN, description="64 bits in hexadecimal, as ibnetdiscover writes them.")]
Device = Annotated[str, Meta(pattern=DEVICE_PATTERN)]
Word = Annotated[str, Meta(max_length=64, pattern="^[ -~]*$")]
Name = Annotated[str, Meta(max_length=255, pattern="^[ -~]*$")]
REGISTERING = frozenset({"NotStarted", "InProgress"})
"""States of a GPU that registers with its fabric, as NVML names them: each GPU has them at a boot."""
HealthName = Literal["healthy", "degraded", "unhealthy", "none"]


class NVLinkHealth(Struct, frozen=True, omit_defaults=True):
    """NVML's health mask over all GPUs of the node, with the worst value of each field, and its problems in words."""

    mask: Unsigned32 = 0
    """NVML's health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*)."""
    decoded: Annotated[list[Word], Meta(max_length=16)] = field(default_factory=list)
    """Problems in the mask, in words."""


class NVLink(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The NVLink attachment of the node's GPUs; if they differ, of the GPU that decides the domain."""

    cluster_uuid: Annotated[str, Meta(pattern=f"{UUID_PATTERN}|^$")] = field(default="", name="clusterUUID")
    """UUID of the NVLink cluster; empty outside of one."""
    clique_id: Unsigned32 = field(default=0, name="cliqueID")
    """Number of the NVLink partition inside the cluster."""
    state: Word = ""
    """State of the registration with the fabric manager, as NVML names it."""
    status: Name = ""
    """Result of that registration, as NVML names it."""
    health: NVLinkHealth = field(default_factory=NVLinkHealth)


class InfiniBandPort(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A port of a host channel adapter. `port_guid` identifies the end of a cable in the subnet."""

    device: Device
    """Name of the host channel adapter in /sys/class/infiniband."""
    port: Annotated[int, Meta(ge=1, le=254)]
    """Number of the port on its adapter."""
    node_guid: GUID | None = field(default=None, name="nodeGUID")
    port_guid: GUID | None = field(default=None, name="portGUID")
    lid: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Local identifier that the subnet manager gave the port; 0 without one."""
    state: Word = ""
    """State of the port, as the kernel names it, such as ACTIVE."""
    rate: Word = ""
    """Speed of the port, as the kernel names it, such as 400 Gb/sec (4X NDR)."""


class LldpNeighbor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The device at the other end of an Ethernet cable, as it announces itself by LLDP (IEEE 802.1AB)."""

    chassis_id: Annotated[Name, Meta(min_length=1)] = field(name="chassisID")
    """Chassis ID that the neighbor announces by LLDP."""
    port_id: Annotated[Name, Meta(min_length=1)] = field(name="portID")
    """Port ID that the neighbor announces by LLDP."""
    system_name: Name = ""
    """System name that the neighbor announces by LLDP."""
    host: bool = False
    """Whether the neighbor announces a station without bridge and router, or names its port as a host does."""


class EthernetLink(Struct, frozen=True):
    """An Ethernet interface of the node with its neighbor."""

    interface: Device
    """Name of the interface on the node."""
    neighbour: LldpNeighbor


class NodeFabricStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state. `domain` and `health` equal the labels of the Node; a flapping reading does not change them."""

    observed_generation: ObservedGeneration = 0
    domain: Annotated[str, Meta(pattern=f"{DOMAIN_PATTERN}|^$")] = ""
    """<clusterUUID>.<cliqueID>; empty without a domain."""
    last_domain: Annotated[str, Meta(pattern=f"{DOMAIN_PATTERN}|^$")] = ""
    """Domain of the node before a fault took it; empty while the node has a domain, or no NVLink fabric."""
    health: HealthName | None = None
    """Health of the NVLink fabric: healthy, degraded, unhealthy, or `none` without a fabric."""
    message: Annotated[str, Meta(max_length=512)] = ""
    """Reason why the health is not healthy, or the domain is empty."""
    infiniband_ports: Annotated[str, Meta(pattern="^([0-9]{1,4}/[0-9]{1,4})?$")] = ""
    """Active ports/ports, for the printer column."""
    nvlink: NVLink | None = None
    infiniband: Annotated[list[InfiniBandPort], Meta(max_length=MAX_PORTS)] = field(default_factory=list)
    """Ports of the host channel adapters of the node."""
    ethernet: Annotated[list[EthernetLink], Meta(max_length=MAX_PORTS)] = field(default_factory=list)
    """Interfaces of the node with a neighbor that announces itself by LLDP."""
    problems: Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=16)] = field(default_factory=list)
    """Data that the agent could not read, with the reasons."""
    last_updated: DateTime | None = None
    """When the agent last changed this status."""
    conditions: Conditions = field(default_factory=list)
    """Healthy: the NVLink fabric of the node is healthy; Unknown without one."""


class NodeFabric(Struct, frozen=True, rename="camel", tag_field="kind", tag="NodeFabric"):
    """The fabric connections (NVLink, InfiniBand, Ethernet) of one node."""

    metadata: ObjectMeta
    spec: NodeSpec
    status: NodeFabricStatus = field(default_factory=NodeFabricStatus)
    api_version: str = API_VERSION
