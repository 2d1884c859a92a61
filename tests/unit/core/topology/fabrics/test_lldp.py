"""Leaf groups of Ethernet networks: from NodeFabrics, and from what lldpcli prints in json and json0."""

import json
from pathlib import Path
from typing import Any

import pytest
from gkm.api.fabrics import EthernetLink
from gkm.topology.fabrics import leaf_groups, lldp, lldpd
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.lldpd import Neighbor
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.topology.node_fabrics import node_fabric

DATA = Path(__file__).parents[4] / "data" / "fabric"
A, B, C, D = (f"0c:42:a1:00:00:0{number}" for number in range(4))


def groups(found: FabricDiscovery) -> dict[str, list[str]]:
    return {hypernode.name: [member.name for member in hypernode.members] for hypernode in found.hypernodes}


def named(*chassis: str) -> str:
    return min(map(leaf_groups.name_of, chassis))


def test_nodes_with_cables_to_the_same_pair_of_switches_are_one_group() -> None:
    fabrics = [node_fabric(name, eth0=A, eth1=B) for name in ("n1", "n2", "n3")]
    fabrics += [node_fabric(name, eth0=C, eth1=D) for name in ("n4", "n5", "n6")]
    found = lldp.discover(fabrics, [f"n{number}" for number in range(1, 7)])
    assert groups(found) == {named(A, B): ["n1", "n2", "n3"], named(C, D): ["n4", "n5", "n6"]}
    assert {hypernode.tier_name for hypernode in found.hypernodes} == {"leaf"}


def test_the_chassis_counts_in_any_case_and_its_name_does_not_stand_in_the_group() -> None:
    found = lldp.discover([node_fabric("n1", eth0=A), node_fabric("n2", eth0=A.upper())], ["n1", "n2"])
    assert groups(found) == {named(A): ["n1", "n2"]}
    assert "0c" not in next(iter(groups(found)))[:9]


def test_the_network_for_management_is_left_out_by_the_names_of_interfaces() -> None:
    fabrics = [node_fabric(f"n{number}", eth0=D, rdma0=chassis) for number, chassis in enumerate((A, A, B, B))]
    nodes = [f"n{number}" for number in range(4)]
    every = lldp.discover(fabrics, nodes)
    assert {each.node for each in every.quarantined} == set(nodes)
    counted = lldp.discover(fabrics, nodes, counted=Counted(["rdma*"]))
    assert groups(counted) == {named(A): ["n0", "n1"], named(B): ["n2", "n3"]}
    without = lldp.discover(fabrics, nodes, counted=Counted(switches=[f"!{D}"]))
    assert without == counted


def test_nodes_of_which_no_cable_counts_are_told() -> None:
    found = lldp.discover(
        [node_fabric("n1", eth0=A), node_fabric("n2", rdma0=A)], ["n1", "n2"], counted=Counted(["rdma*"])
    )
    assert groups(found) == {named(A): ["n2"]}
    assert found.faults == (
        "1 node has switches as neighbors, but the interfaces and switches of the config select no neighbor",
    )


STATION = [{"type": "Bridge", "enabled": False}, {"type": "Station", "enabled": True}]
FORWARDING = [{"type": "Bridge", "enabled": True}, {"type": "Station", "enabled": True}]


@pytest.mark.parametrize(
    ("neighbor", "is_switch"),
    [
        ({"capability": FORWARDING}, True),
        ({"capability": STATION}, False),
        ({"capability": STATION[1]}, False),
        ({"capability": []}, True),
        ({"name": "n2"}, False),
        ({"name": "N2.example.com"}, False),
        ({"port": {"id": {"type": "ifname", "value": "br0"}}}, False),
        ({"port": {"id": {"type": "ifname", "value": "enp1s0f0"}}}, False),
        ({"port": {"id": {"type": "mac", "value": B}, "descr": "eth1"}}, False),
        ({"port": {"id": {"type": "mac", "value": B}, "descr": "eno1 of n1 in rack 7"}}, True),
        ({"port": {"id": {"type": "ifname", "value": "Ethernet1/1"}, "descr": "eth1"}}, True),
        ({"port": {"id": {"type": "local", "value": "bridge-aggregation1"}}}, True),
    ],
)
def test_hosts_and_bridges_in_hosts_are_no_switches(neighbor: dict[str, Any], is_switch: bool) -> None:  # noqa: FBT001 -- a parameter
    fields = {"id": {"type": "mac", "value": A}, "capability": neighbor.get("capability", FORWARDING)}
    port = neighbor.get("port", {"id": {"type": "ifname", "value": "swp1"}})
    one = {"via": "LLDP", "chassis": {neighbor.get("name", "leaf-1"): fields}, "port": port}
    found = lldp.from_neighbors({"n1": lldpd.decode(printed({"eth0": one}))}, ["n1", "n2"])
    assert groups(found) == ({named(A): ["n1"]} if is_switch else {})
    assert found.faults == (() if is_switch else ("1 neighbor is a host or a bridge",))


def test_hosts_in_nodefabrics_are_no_switches() -> None:
    fabrics = [node_fabric(name, eth0=A) for name in ("n1", "n2")]
    links = fabrics[1].status.ethernet
    links[:] = [EthernetLink(link.interface, structs.replace(link.neighbour, host=True)) for link in links]
    found = lldp.discover(fabrics, ["n1", "n2"])
    assert groups(found) == {named(A): ["n1"]}
    assert found.faults == ("1 neighbor is a host or a bridge",)


def test_a_nodefabric_without_a_node_or_without_neighbors_is_in_no_group() -> None:
    fabrics = [node_fabric("n1", eth0=A), node_fabric("gone", eth0=A), node_fabric("n2")]
    assert groups(lldp.discover(fabrics, ["n1", "n2"])) == {named(A): ["n1"]}


def entry(chassis: str = A, name: str = "leaf-1", port: str = "swp1") -> dict[str, Any]:
    """Return an interface as `-f json` prints it."""
    described = {"id": {"type": "mac", "value": chassis}, "descr": "x", "capability": [{"type": "Bridge"}]}
    return {
        "via": "LLDP",
        "rid": "1",
        "chassis": {name: described} if name else described,
        "port": {"id": {"type": "ifname", "value": port}, "ttl": "120"},
    }


def printed(interface: Any) -> bytes:  # noqa: ANN401 -- JSON
    return json.dumps({"lldp": {"interface": interface}}, indent=2).encode()


def test_json_and_json0_of_real_lldpd_are_the_same_neighbors() -> None:
    json0 = (DATA / "lldpd-two-interfaces.json0").read_bytes()
    chassis = "d2:3b:24:ff:3c:8d"
    expected = (
        Neighbor("va0", "LLDP", chassis, chassis, "leaf-1"),
        Neighbor("va1", "LLDP", chassis, "82:57:42:29:d6:33", "leaf-1"),
    )
    assert lldpd.decode(json0) == expected
    assert lldpd.decode((DATA / "lldpd-two-interfaces.json").read_bytes()) == expected


NEIGHBOR = Neighbor("eth0", "LLDP", A, "swp1", "leaf-1")
SHAPES: dict[str, tuple[bytes, tuple[Neighbor, ...]]] = {
    "one interface": (printed({"eth0": entry()}), (NEIGHBOR,)),
    "two": (printed([{"eth0": entry()}, {"eth1": entry()}]), (NEIGHBOR, NEIGHBOR._replace(interface="eth1"))),
    "two neighbors of one": (
        printed([{"eth0": entry()}, {"eth0": entry(B)}]),
        (NEIGHBOR, NEIGHBOR._replace(chassis_id=B)),
    ),
    "no name": (printed({"eth0": entry(name="")}), (NEIGHBOR._replace(system_name=""),)),
    "a neighbor named id": (printed({"eth0": entry(name="id")}), (NEIGHBOR._replace(system_name="id"),)),
    "an interface named name": (printed({"name": entry()}), (NEIGHBOR._replace(interface="name"),)),
    "nothing but the id": (
        printed({"eth0": {"via": "LLDP", "chassis": {"id": {"value": A}}, "port": {"id": {"value": "swp1"}}}}),
        (NEIGHBOR._replace(system_name=""),),
    ),
    "no chassis": (printed({"eth0": {"via": "LLDP"}}), (Neighbor("eth0", "LLDP", "", "", ""),)),
    "nothing": (b'{"lldp": {}}', ()),
    "nothing in json0": (b'{"lldp": [{}]}', ()),
    "strange values": (printed({"eth0": 7, "eth1": [], "eth2": {"chassis": [[]], "port": {"id": [7]}}}), ()),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_of_json(shape: str) -> None:
    text, expected = SHAPES[shape]
    found = lldpd.decode(text)
    assert tuple(each for each in found if each.chassis_id or each.protocol) == expected


def test_groups_from_the_output_of_each_node() -> None:
    texts = {"n1": printed({"eth0": entry()}), "n2": printed({"eth0": entry(name="")}), "n3": printed({"x": entry(B)})}
    found = lldp.from_neighbors({node: lldpd.decode(text) for node, text in texts.items()}, texts)
    assert groups(found) == {named(A): ["n1", "n2"], named(B): ["n3"]}


def test_groups_from_one_file_of_several_nodes() -> None:
    text = b'{"n1": %b, "n2": %b}' % (printed({"eth0": entry()}), printed([{"eth0": entry()}]))
    assert groups(lldp.from_neighbors(lldpd.decode_nodes(text), ["n1", "n2"])) == {named(A): ["n1", "n2"]}


def test_other_protocols_and_empty_chassis_do_not_count_and_one_interface_counts_once() -> None:
    twice = [
        Neighbor("eth0", "LLDP", A, "1", ""),
        Neighbor("eth0", "LLDP", A, "2", ""),
        Neighbor("eth1", "", B, "", ""),
    ]
    ignored = [Neighbor("eth2", "CDPv2", C, "1", ""), Neighbor("eth3", "LLDP", "  ", "1", "")]
    found = lldp.from_neighbors({"n1": [*twice, *ignored], "n2": [twice[0]], "n3": [twice[2]]}, ["n1", "n2", "n3"])
    assert [each.node for each in found.quarantined] == ["n1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "was truncated"),
        (b"[]", "it has no object or list `lldp`"),
        (b"{}", "it has no object or list `lldp`"),
        (b'{"lldp": 7}', "it has no object or list `lldp`"),
        (b'{"lldp": "\xff"}', "'utf-8' codec can't decode"),
        (b"[" * 99_999, "holds more than the 8297 values"),
        (b'{"lldp": [' + b"1," * 9_999 + b"1]}", "holds more than the 3298 values"),
    ],
)
def test_what_is_not_the_output_of_lldpcli_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(OutputUnreadable, match=problem):
        lldpd.decode(text)


@pytest.mark.parametrize("text", [b"[]", b'{"lldp": {}}', b'{"secret": {}}', b'{"a": {"lldp": {}}, "secret": []}'])
def test_a_file_that_is_not_of_nodes_is_refused_without_its_content(text: bytes) -> None:
    with pytest.raises(OutputUnreadable) as caught:
        lldpd.decode_nodes(text)
    assert "secret" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["lldp", "interface", "chassis", "id", "value", "name", "port", "via"]), inner
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_gives_texts_or_an_error(value: Any) -> None:  # noqa: ANN401 -- JSON
    try:
        found = lldpd.decode(json.dumps({"lldp": value}).encode())
    except OutputUnreadable:
        return
    assert all(isinstance(text, str) for neighbor in found for text in neighbor[:5])
