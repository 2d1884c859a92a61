"""Nodes with GPUs or in an NVLink clique, reduced to what decides about ComputeDomains and their capacity. Pure."""

from sys import intern

from gkm.api.mnnvl_metadata import NODE_LABEL
from gkm.api.topology_settings import Topology
from gkm.topology import labels
from gkm.topology.nodes import Node, gpu_count
from msgspec import Struct

_UNHEALTHY = "unhealthy"


class FabricNode(Struct, frozen=True, gc=False):
    """A node. `gpus` are its allocatable GPUs: None if no device plugin counts them, as where DRA assigns GPUs."""

    name: str
    clique: str = ""
    """Its fabric domain, "" without one."""
    product: str = ""
    """The product of its GPUs, in lower case."""
    gpus: int | None = None
    usable: bool = False
    """Whether it is Ready and schedulable, its fabric is not unhealthy, and its device plugin, if any, offers GPUs."""
    held_by: str = ""
    """The uid of the ComputeDomain that has its IMEX channel."""


def fabric_node(node: Node, settings: Topology) -> FabricNode:
    """Return what a node is with the labels of a configuration; one with an invalid value is not usable."""
    clique = product = ""
    gpus = None if node.gpus is None else 0
    try:
        claims = labels.read(node.labels, settings)
        clique, product = intern(claims.domain), intern(claims.flavor)
        gpus = None if node.gpus is None else gpu_count(node.gpus)
        usable = node.ready and not node.spec.unschedulable and claims.health != _UNHEALTHY and gpus != 0
    except ValueError:
        usable = False
    return FabricNode(node.name, clique, product, gpus, usable, node.labels.get(NODE_LABEL, ""))


def has_gpus(node: FabricNode) -> bool:
    """Return whether a node is of interest."""
    return bool(node.clique or node.held_by) or node.gpus is not None
