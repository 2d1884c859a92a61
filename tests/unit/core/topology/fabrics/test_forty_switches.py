"""The topology file of a real subnet of 40 switches: every host in its group, by a table that other means derive."""

import re
from collections import Counter
from pathlib import Path

import pytest
from gkm.api.fabrics import InfiniBandPort, NodeFabric, NodeFabricStatus
from gkm.api.meta import ObjectMeta
from gkm.api.nodes import NodeSpec
from gkm.topology.fabrics import ibnetdiscover
from support.topology.surveys import discover

SURVEY = Path(__file__).parents[4] / "data" / "fabric" / "ibnetdiscover-40-switches.out"


class Table:
    """What a person reads in the file: A09-P1-IBLEAF-04-02 is a rail of the group 02, whose hosts are a06-p1-dgx-02-c*.

    The hosts that no group has in its name are those whose cables end at its leaves.
    """

    def __init__(self, text: str) -> None:
        self.leaves: dict[str, list[str]] = {}
        self.spines: list[str] = []
        self.groups: dict[str, str] = {}
        self.factory: dict[str, list[str]] = {}
        """GUIDs of adapters with a factory's description, by host: a host has the same port of each leaf."""
        at = ""
        for line in text.splitlines():
            if line.startswith("Switch"):
                guid = line.split('"')[1][2:]
                leaf = re.search(r"IBLEAF-\d\d-(\d\d)", line)
                at = leaf[1] if leaf else ""
                (self.leaves.setdefault(at, []) if leaf else self.spines).append(guid)
            elif host := re.match(r'\[\d+\]\t"H-(\w+)".*# "(\S+) \S+" lid', line):
                name = host[2].lower()
                named = re.search(r"dgx-(\d\d)-c", name)
                self.groups[name] = named[1] if named else at
            elif host := re.match(r'\[(\d+)\]\t"H-(\w+)".*# "MT4129 ', line):
                self.factory.setdefault(f"{at}-port-{host[1]}", []).append(host[2])

    def group_name(self, group: str) -> str:
        return min(self.leaves[group])


TABLE = Table(SURVEY.read_text())


def test_the_table_is_of_31_leaves_9_spines_and_122_hosts_in_groups_of_11_to_18() -> None:
    assert sum(map(len, TABLE.leaves.values())) == 31
    assert len(TABLE.spines) == 9
    assert len(TABLE.groups) == 122
    sizes = Counter(TABLE.groups.values())
    assert len(sizes) == 8
    assert (min(sizes.values()), max(sizes.values())) == (11, 18)
    assert sum(map(len, TABLE.factory.values())) == 69


@pytest.mark.parametrize("backwards", [False, True])
def test_every_host_is_in_the_group_of_its_rack(*, backwards: bool) -> None:
    nodes = sorted(TABLE.groups, reverse=backwards)
    found = discover([SURVEY.read_bytes()], [], nodes)
    leaves = [hypernode for hypernode in found.hypernodes if hypernode.tier_name == "leaf"]
    placed = {member.name: leaf.name for leaf in leaves for member in leaf.members if member.kind == "Node"}
    assert placed == {node: TABLE.group_name(TABLE.groups[node]) for node in nodes}
    assert len(leaves) == 8
    assert (found.quarantined, found.faults) == ((), ())


def test_the_spines_are_one_group_of_all_groups() -> None:
    found = discover([SURVEY.read_bytes()], [], TABLE.groups)
    (spine,) = (hypernode for hypernode in found.hypernodes if hypernode.tier_name == "spine")
    assert spine.name == min(TABLE.spines)
    assert {member.name for member in spine.members} == {TABLE.group_name(group) for group in TABLE.leaves}
    assert {hypernode.tier_name for hypernode in found.hypernodes} == {"leaf", "spine"}


def test_a_cluster_with_the_hosts_of_one_group_has_no_other_group_and_takes_no_foreign_leaf_for_a_spine() -> None:
    nodes = [node for node, group in TABLE.groups.items() if group == "02"]
    found = discover([SURVEY.read_bytes()], [], nodes)
    assert [hypernode.name for hypernode in found.hypernodes] == [TABLE.group_name("02")]


def test_hosts_with_adapters_of_a_factorys_description_are_found_by_their_guids() -> None:
    fabrics = [
        NodeFabric(
            ObjectMeta(name),
            NodeSpec(name),
            NodeFabricStatus(infiniband=[InfiniBandPort("mlx5_0", 1, port_guid=guid) for guid in guids]),
        )
        for name, guids in TABLE.factory.items()
    ]
    found = discover([SURVEY.read_bytes()], fabrics, [*TABLE.factory, *TABLE.groups])
    placed = {
        member.name: hypernode.name
        for hypernode in found.hypernodes
        for member in hypernode.members
        if member.kind == "Node"
    }
    expected = {host: TABLE.group_name(host[:2]) for host in TABLE.factory}
    assert placed == expected | {node: TABLE.group_name(group) for node, group in TABLE.groups.items()}


def test_aggregation_nodes_are_no_hosts() -> None:
    subnet = ibnetdiscover.parse(SURVEY.read_bytes())
    assert len(subnet.ports) == 582 - 40
    assert len(subnet.switches) == 40
