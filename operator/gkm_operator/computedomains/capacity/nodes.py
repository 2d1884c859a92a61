"""Nodes with GPUs or in an NVLink clique, reduced to what decides about ComputeDomains and their capacity. Pure."""

from sys import intern

from gkm.api.mnnvl_metadata import NODE_LABEL
from gkm.api.topology_settings import Topology
from gkm.kube.resources import Resource
from gkm.topology import labels
from gkm.topology.nodes import KubeNodeMetadata, KubeNodeSpec, KubeNodeStatus, Node
from gkm.topology.quantities import gpu_count
from msgspec import Struct, structs

_UNHEALTHY = "unhealthy"
_NO_SPEC, _NO_STATUS = KubeNodeSpec(), KubeNodeStatus()


class FabricNode(Struct, frozen=True, gc=False):
    """A node. `spec`, `status` and its labels are empty once it is decoded.

    `gpus` are its allocatable GPUs: None if no device plugin counts them, as where DRA assigns GPUs.
    """

    metadata: KubeNodeMetadata
    spec: KubeNodeSpec = _NO_SPEC
    status: KubeNodeStatus = _NO_STATUS
    clique: str = ""
    """Its fabric domain, "" without one."""
    product: str = ""
    """The product of its GPUs, in lower case."""
    gpus: int | None = None
    usable: bool = False
    """Whether it is Ready and schedulable, its fabric is not unhealthy, and its device plugin, if any, offers GPUs."""
    held_by: str = ""
    """The uid of the ComputeDomain that has its IMEX channel."""

    @property
    def name(self) -> str:
        """Return the name."""
        return self.metadata.name


def fabric_nodes(settings: Topology) -> Resource[FabricNode]:
    """Return the kind Node as `FabricNode`, with the labels of a configuration."""

    class Observed(FabricNode, frozen=True, gc=False):
        def __post_init__(self) -> None:
            node = Node(self.metadata, self.spec, self.status)
            for name, value in (
                *_fields(node, settings),
                ("held_by", intern(node.labels.get(NODE_LABEL, ""))),
                ("metadata", KubeNodeMetadata(intern(node.name))),
                ("spec", _NO_SPEC),
                ("status", _NO_STATUS),
            ):
                structs.force_setattr(self, name, value)

    return Resource("v1", "Node", "nodes", namespaced=False, type=Observed)


def has_gpus(node: FabricNode) -> bool:
    """Return whether a node is stored."""
    return bool(node.clique or node.held_by) or node.gpus is not None


def _fields(node: Node, settings: Topology) -> tuple[tuple[str, object], ...]:
    """Return the values of the fields that labels and GPUs decide; a node with an invalid one is not usable."""
    clique = product = ""
    gpus = None if node.gpus is None else 0
    try:
        claims = labels.read(node.labels, settings)
        clique, product = intern(claims.domain), intern(claims.flavor)
        gpus = None if node.gpus is None else gpu_count(node.gpus)
        usable = node.ready and not node.spec.unschedulable and claims.health != _UNHEALTHY and gpus != 0
    except ValueError:
        usable = False
    return ("clique", clique), ("product", product), ("gpus", gpus), ("usable", usable)
