"""The provider `lldp`: leaf groups of an Ethernet network, from the neighbors of nodes and of switches. Pure.

A leaf is the chassis of a neighbor, whose name is for people only. A node usually has a cable to a switch for
management too: `counts` decides by the name of an interface whether its cable counts.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics import guid_join, leaf_groups, netq
from gkm.topology.fabrics.lldpd import Neighbor
from gkm.topology.fabrics.network import FabricDiscovery, FabricNetwork, MatchedHosts

Counts = Callable[[str], bool]


def every_interface(_: str) -> bool:
    """Return that the cable of an interface counts."""
    return True


def matching(globs: Collection[str]) -> Counts:
    """Return the function that counts the cables of interfaces whose names a glob matches."""
    return lambda interface: any(fnmatchcase(interface, glob) for glob in globs)


def discover(
    fabrics: Iterable[NodeFabric],
    nodes: Collection[str],
    existing: Container[str] = (),
    counts: Counts = every_interface,
) -> FabricDiscovery:
    """Return the leaf groups of `nodes` from their NodeFabrics; `existing` are the names of groups before."""
    neighbors = {
        fabric.metadata.name: [
            Neighbor(link.interface, "", link.neighbour.chassis_id, link.neighbour.port_id, link.neighbour.system_name)
            for link in fabric.status.ethernet
        ]
        for fabric in fabrics
    }
    return from_neighbors(neighbors, nodes, existing, counts)


def from_neighbors(
    neighbors: Mapping[str, Iterable[Neighbor]],
    nodes: Collection[str],
    existing: Container[str] = (),
    counts: Counts = every_interface,
) -> FabricDiscovery:
    """Return the leaf groups of `nodes` from their neighbors by node, as `lldpd` decodes them."""
    hosts: dict[str, Counter[str]] = {}
    known = frozenset(nodes)
    others: list[str] = []
    for node, found in neighbors.items():
        # An interface with several neighbors has a device in between that forwards LLDP: each is one cable at most.
        chassis = {
            (neighbor.interface, neighbor.chassis_id.strip().lower())
            for neighbor in found
            if neighbor.protocol in {"", "LLDP"} and neighbor.chassis_id.strip() and counts(neighbor.interface)
        }
        if node not in known:
            others.append(node)
        elif chassis:
            hosts[node] = Counter(switch for _, switch in chassis)
    discovered = leaf_groups.discover(FabricNetwork(hosts), known, existing)
    return replace(discovered, hosts=MatchedHosts.of([*hosts, *others], known))


def from_netq(
    rows: Iterable[netq.CableEnd],
    nodes: Collection[str],
    existing: Container[str] = (),
    counts: Counts = every_interface,
) -> FabricDiscovery:
    """Return the groups of `nodes` at all levels from the cables that NetQ reports."""
    return leaf_groups.discover(netq.network(rows, guid_join.by_name(nodes), counts), nodes, existing)
