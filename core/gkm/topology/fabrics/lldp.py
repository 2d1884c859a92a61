"""The provider `lldp`: it groups the leaf switches of an Ethernet network by the neighbors that nodes report. Pure.

A leaf is the chassis of a neighbor, whose name is for people only. A node usually has a cable to a switch for
management too: `counted` decides which interfaces and switches count. Hosts, and bridges in hosts, announce themselves
as switches do: a neighbor that is a node, or calls its port as a host does, is no switch.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from gkm.api.fabrics import EthernetLink, NodeFabric
from gkm.api.grammar import agree, count_of
from gkm.topology.fabrics import guid_join, leaf_groups
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.interfaces import is_host_interface
from gkm.topology.fabrics.lldpd import Neighbor
from gkm.topology.fabrics.network import FabricDiscovery, FabricNetwork, MatchedHosts


def discover(
    fabrics: Iterable[NodeFabric],
    nodes: Collection[str],
    existing: Container[str] = (),
    counted: Counted = EVERY_CABLE,
) -> FabricDiscovery:
    """Return the leaf groups of `nodes` from their NodeFabrics; `existing` are the names of earlier groups."""
    neighbors = {fabric.metadata.name: [*map(_neighbor, fabric.status.ethernet)] for fabric in fabrics}
    return from_neighbors(neighbors, nodes, existing, counted)


def _neighbor(link: EthernetLink) -> Neighbor:
    one = link.neighbour
    return Neighbor(link.interface, "", one.chassis_id, one.port_id, one.system_name, one.host)


def from_neighbors(
    neighbors: Mapping[str, Iterable[Neighbor]],
    nodes: Collection[str],
    existing: Container[str] = (),
    counted: Counted = EVERY_CABLE,
) -> FabricDiscovery:
    """Return the leaf groups of `nodes` from their LLDP neighbors."""
    known = frozenset(nodes)
    names = guid_join.by_name(known)
    hosts: dict[str, Counter[str]] = {}
    others: list[str] = []
    left_out = not_counted = 0
    for node, found in neighbors.items():
        announced = [each for each in found if each.protocol in {"", "LLDP"} and each.chassis_id.strip()]
        switches = [each for each in announced if not _is_host(each, names)]
        left_out += len(announced) - len(switches)
        # An interface with several neighbors has a device in between that forwards LLDP: each is one cable at most.
        chassis = {
            (neighbor.interface, neighbor.chassis_id.strip().lower())
            for neighbor in switches
            if counted.adapter(neighbor.interface) and counted.switch(neighbor.chassis_id, neighbor.system_name)
        }
        if node not in known:
            others.append(node)
        elif chassis:
            hosts[node] = Counter(switch for _, switch in chassis)
        else:
            not_counted += bool(switches)
    faults = tuple(_faults(left_out, not_counted))
    discovered = leaf_groups.discover(FabricNetwork(hosts, faults=faults), known, existing)
    return replace(discovered, hosts=MatchedHosts.of([*hosts, *others], known))


def _is_host(neighbor: Neighbor, names: Collection[str]) -> bool:
    name = neighbor.system_name.strip().lower()
    is_node = name in names or name.partition(".")[0] in names
    return neighbor.is_host or is_node or is_host_interface(neighbor.port_id)


def _faults(left_out: int, not_counted: int) -> Iterator[str]:
    if left_out:
        yield f"{count_of(left_out, 'neighbor')} {agree(left_out, 'is a host or a bridge', 'are hosts or bridges')}"
    if not_counted:
        nodes = f"{count_of(not_counted, 'node')} {agree(not_counted, 'has', 'have')}"
        yield f"{nodes} switches as neighbors, but the interfaces and switches of the config select no neighbor"
