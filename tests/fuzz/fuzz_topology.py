"""What programs and people report about networks: whatever it is, groups form a tree, and messages have no content."""

import re
from collections.abc import Iterable

from gkm.topology.fabrics import ibnetdiscover, infiniband, lldp, lldpd, tree_file, ufm
from gkm.topology.fabrics.domain_tree import TreeInvalid
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.hypernodes import HyperNode
from support.topology.surveys import discover

NODES = ("gpu-1", "gpu-2", "gpu-3")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
# Positions and types as msgspec prints them, and the words of our messages.
_MESSAGE = re.compile(r"[A-Za-z0-9 :;,.()\[\]{}$`|'\"_*=<>^\\/?+-]{1,400}", re.ASCII)


def topology_file(data: bytes) -> None:
    try:
        subnet = ibnetdiscover.parse(data)
    except ibnetdiscover.NotASurvey as error:
        _check_messages([str(error)])
        return
    assert all(re.fullmatch("[0-9a-f]{16}|", guid) for guid in subnet.switches)
    assert all(port.switch in subnet.switches for port in subnet.ports)
    assert all(link.cables > 0 for link in subnet.links)
    found = discover([data], [], NODES)
    _check(found)
    # Names that were given once stay.
    names = [hypernode.name for hypernode in found.hypernodes]
    assert discover([data, data], [], NODES, names).hypernodes == found.hypernodes


def ufm_ports(data: bytes) -> None:
    try:
        page = ufm.decode(data)
    except OutputUnreadable as error:
        _check_messages([str(error)])
        return
    _check(infiniband.from_subnets([ufm.subnet([page])], [], NODES))
    assert ufm.subnet([page]) == ufm.subnet([page._replace(rows=page.rows[::-1])])


def lldpcli(data: bytes) -> None:
    decoded: dict[str, tuple[lldpd.Neighbor, ...]] = {}
    try:
        decoded["gpu-1"] = lldpd.decode(data)
    except OutputUnreadable as error:
        _check_messages([str(error)])
    try:
        decoded |= lldpd.decode_nodes(data)
    except OutputUnreadable as error:
        _check_messages([str(error)])
    _check(lldp.from_neighbors(decoded, NODES))


def tree(data: bytes) -> None:
    try:
        found = tree_file.parse(data)
    except TreeInvalid as error:
        _check_messages([str(error)])
        return
    _check_tree(found)


def _check(found: FabricDiscovery) -> None:
    _check_tree(found.hypernodes)
    _check_messages(found.faults)
    placed = {member.name for each in found.hypernodes for member in each.members if member.kind == "Node"}
    assert placed <= set(NODES)
    assert not placed & {each.node for each in found.quarantined}


def _check_tree(hypernodes: Iterable[HyperNode]) -> None:
    """Names are legal and unique, members exist and have one parent, tiers rise, and no domain is empty."""
    tiers: dict[str, int] = {}
    members = set()
    for hypernode in hypernodes:
        assert _NAME.fullmatch(hypernode.name)
        assert hypernode.name not in tiers
        assert hypernode.members
        for member in hypernode.members:
            assert member not in members
            members.add(member)
            assert member.kind == "Node" or tiers[member.name] < hypernode.tier
        tiers[hypernode.name] = hypernode.tier


def _check_messages(messages: Iterable[str]) -> None:
    for message in messages:
        assert _MESSAGE.fullmatch(message), ascii(message)
