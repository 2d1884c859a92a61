"""NodeFabrics with a few GUIDs or neighbors."""

from gkm.api.fabrics import EthernetLink, InfiniBandPort, LldpNeighbor, NodeFabric, NodeFabricStatus
from gkm.api.meta import ObjectMeta
from gkm.api.nodes import NodeSpec


def node_fabric(node: str, *guids: str, node_guids: tuple[str, ...] = (), **chassis: str) -> NodeFabric:
    """Return a NodeFabric with these GUIDs of ports and of adapters, and these chassis by interface."""
    ports = [InfiniBandPort("mlx5_0", 1, port_guid=guid) for guid in guids]
    ports += [InfiniBandPort("mlx5_1", 1, node_guid=guid) for guid in node_guids]
    links = [EthernetLink(interface, LldpNeighbor(chassis[interface], "swp1")) for interface in chassis]
    return NodeFabric(ObjectMeta(node), NodeSpec(node), NodeFabricStatus(infiniband=ports, ethernet=links))
