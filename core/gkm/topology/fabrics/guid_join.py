"""Join host ports with nodes: by the GUIDs in NodeFabrics, and by name where no NodeFabric names a GUID. Pure.

A GUID is exact; a description is what an administrator, a factory or a forged survey has written. So names are used
only for nodes whose GUID is in no NodeFabric, and to decide between several nodes that claim the same GUID.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.network import OTHER_HOST, Cables, FabricNetwork
from gkm.topology.fabrics.subnet import HostPort, Subnet

_CONTESTED = ""
"""Stands for the node of a GUID or name that several nodes claim."""


_SETTINGS = "adapters or switches"


def join(
    subnets: Iterable[Subnet], fabrics: Iterable[NodeFabric], nodes: Iterable[str], counted: Counted = EVERY_CABLE
) -> FabricNetwork:
    """Return the network of all subnets with the names of `nodes` for their hosts; only `counted` cables are used.

    NodeFabrics of other nodes do not count. Several reports of one subnet count once. Where they contradict one
    another, the cables of all count: a node that was moved lies in no group until the old report is gone. The order of
    subnets, NodeFabrics and nodes does not matter.
    """
    surveys, known = list(subnets), frozenset(nodes)
    guids: dict[str, set[str]] = defaultdict(set)
    devices: dict[str, str] = {}
    for fabric in fabrics:
        if fabric.metadata.name in known:
            for port in fabric.status.infiniband:
                for guid in filter(None, (port.port_guid, port.node_guid)):
                    guids[guid].add(fabric.metadata.name)
                    devices[guid] = port.device
    every_port, links = _distinct(surveys), _links(surveys)
    ports, links = _counted(every_port, links, surveys, devices, counted)
    owners = _owners(ports, guids, by_name(known))
    hosts, anonymous = _hosts(ports, owners)
    faults = [fault for subnet in surveys for fault in subnet.faults]
    if contested := sum(len(claimants) > 1 for claimants in guids.values()):
        faults.append(f"{contested} GUIDs that several NodeFabrics have are used only where a switch names a node")
    if every_port and not ports:
        faults.append(f"no {_SETTINGS} in it match the globs that its config names, so no cable is used")
    return FabricNetwork(hosts, links, anonymous, tuple(sorted(faults)), _SETTINGS)


def _counted(
    ports: list[HostPort], links: Cables, surveys: Iterable[Subnet], devices: Mapping[str, str], counted: Counted
) -> tuple[list[HostPort], Cables]:
    """Return the cables that count. A NodeFabric names an adapter as its node does, a description as it once did."""
    if counted.is_all:
        return ports, links
    names = {guid: name for subnet in surveys for guid, name in subnet.switches.items()}
    known = {*names, *links, *(port.switch for port in ports)}
    switches = {switch for switch in known if counted.switch(switch, names.get(switch, ""))}
    counting = [
        port
        for port in ports
        if port.switch in switches and counted.adapter(devices.get(port.port_guid) or port.adapter)
    ]
    between = {
        end: {other: n for other, n in links[end].items() if other in switches} for end in links.keys() & switches
    }
    return counting, between


def _claims(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the node of each claimed thing, or _CONTESTED."""
    found: dict[str, str] = {}
    for thing, node in pairs:
        if found.setdefault(thing, node) != node:
            found[thing] = _CONTESTED
    return found


def _distinct(surveys: Sequence[Subnet]) -> list[HostPort]:
    """Return each host port once, even if surveys differ about its description."""
    found: dict[Hashable, HostPort] = {}
    for port in sorted(port for subnet in surveys for port in subnet.ports):
        found.setdefault((port.switch, port.port_guid) if port.port_guid else port, port)
    return list(found.values())


def by_name(nodes: Iterable[str]) -> Mapping[str, str]:
    """Return the node for each node name and each first DNS label; "" for a label that several nodes share."""
    known = frozenset(nodes)
    labels = _claims((node.partition(".")[0], node) for node in known)
    return {**labels, **{node: node for node in known}}


def _owners(
    ports: Sequence[HostPort], guids: Mapping[str, Collection[str]], names: Mapping[str, str]
) -> list[str | None]:
    """Return the node of each port, _CONTESTED, or None if no node is named."""
    owners: list[str | None] = [None] * len(ports)
    identified = frozenset().union(*guids.values())

    def claim(node_of: Callable[[HostPort], str | None]) -> None:
        for index, port in enumerate(ports):
            if owners[index] is None:
                owners[index] = node_of(port)

    def named(port: HostPort) -> str | None:
        found = {names[word] for word in port.words if word in names}
        return found.pop() or None if len(found) == 1 else None

    def claimant(port: HostPort) -> str | None:
        claimants = guids.get(port.port_guid) or guids.get(port.node_guid) or ()
        if len(claimants) > 1:
            name = named(port)
            return name if name in claimants else _CONTESTED
        return next(iter(claimants), None)

    claim(claimant)
    claim(lambda port: None if (name := named(port)) in identified else name)
    # Adapters without a name belong to the node of the other adapters of their system (of a card with several ports).
    systems = _claims(
        [(port.system_guid, node) for port, node in zip(ports, owners, strict=True) if node and port.system_guid]
    )
    claim(lambda port: systems.get(port.system_guid) or None)
    return owners


def _hosts(ports: Sequence[HostPort], owners: Sequence[str | None]) -> tuple[Cables, Mapping[str, int]]:
    """Return the cables of hosts, and the numbers of hosts of which only one cable is known, by switch.

    A host without any name has as many identities as systems: it can show which leaves are rails of one group only if
    it is seen at several.
    """
    hosts: dict[str, Counter[str]] = defaultdict(Counter)
    nameless: dict[str, Counter[str]] = defaultdict(Counter)
    anonymous: Counter[str] = Counter()
    for port, node in zip(ports, owners, strict=True):
        if node or port.host:
            hosts[node or OTHER_HOST + port.host][port.switch] += 1
        elif port.system_guid:
            nameless[port.system_guid][port.switch] += 1
        else:
            anonymous[port.switch] += 1
    for system, cables in nameless.items():
        if len(cables) > 1:
            hosts[OTHER_HOST + system] = cables
        else:
            anonymous.update(cables.keys())
    return hosts, anonymous


def _links(surveys: Iterable[Subnet]) -> Cables:
    links: dict[str, dict[str, int]] = defaultdict(dict)
    for subnet in surveys:
        for first, second, cables in subnet.links:
            for end, other in ((first, second), (second, first)):
                links[end][other] = max(cables, links[end].get(other, 0))
    return links
