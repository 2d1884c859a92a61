"""UFM's list of ports: Volcano's mock with every node by name, the fields of newer versions, and hostile rows."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from gkm.topology.fabrics import infiniband, ufm
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.fabrics.subnet import HostPort, Link, Subnet
from hypothesis import given
from hypothesis import strategies as st
from support.topology.infiniband_networks import Rails, cabling, leaf_guid
from support.topology.node_fabrics import node_fabric

MOCK = Path(__file__).parents[4] / "data" / "fabric" / "ufm_ports_mock.json"
LEAF, SPINE, PORT, SYSTEM = "2c5e010000000000", "2c5e020000000000", "e09d010000000000", "e09d0100000000ff"


def computer(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {"description": "Computer IB Port", "tier": 1, "number": 1, "capabilities": ["reset"], **fields}


def switch(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {"description": "Switch IB Port", "tier": 2, "number": 1, "mirror": None, **fields}


def subnet(*rows: dict[str, Any]) -> Subnet:
    return ufm.subnet([ufm.decode(json.dumps(rows).encode())])


ROWS = [
    computer(
        guid=PORT,
        systemID=SYSTEM,
        system_name="GPU-1",
        node_description="gpu-1 mlx5_0",
        peer_node_name="leaf-1",
        peer_node_guid=LEAF,
    ),
    switch(guid=LEAF, system_name="leaf-1", systemID=LEAF, peer_node_name="spine-1", peer_node_guid=SPINE),
    switch(guid=LEAF, system_name="leaf-1", systemID=LEAF, peer_node_name="spine-1", peer_node_guid=SPINE),
    switch(guid=LEAF, system_name="leaf-1", systemID=LEAF, peer_node_name="gpu-1", peer_node_guid=PORT),
    switch(guid=LEAF, system_name="leaf-1", systemID=LEAF, peer_node_name="N/A", peer_node_guid=None),
    switch(guid=SPINE, system_name="spine-1", systemID=SPINE, peer_node_name="leaf-1", peer_node_guid=LEAF),
]
EXPECTED = Subnet(
    {LEAF: "leaf-1", SPINE: "spine-1"},
    (HostPort(LEAF, PORT, "", SYSTEM, ("gpu-1",), "gpu-1", "mlx5_0"),),
    (Link(LEAF, SPINE, 2),),
)


def test_every_node_of_volcanos_mock_is_in_its_group() -> None:
    # Read without our code: the leaves of each system, and two systems belong together if a leaf is of both.
    rows = json.loads(MOCK.read_text())
    leaves: dict[str, set[str]] = {}
    for row in rows:
        leaves.setdefault(row["system_name"], set()).add(row["peer_node_name"])
    expected = {node: "leaf0" if leaves[node] & {"leaf0", "leaf1", "leaf2", "leaf3"} else "leaf4" for node in leaves}
    assert sorted(expected) == [f"node{number}" for number in range(8)]
    assert list(expected.values()) == ["leaf0"] * 4 + ["leaf4"] * 4
    found = infiniband.from_subnets([ufm.subnet([ufm.decode(MOCK.read_bytes())])], [], expected)
    placed = {member.name: hypernode.name for hypernode in found.hypernodes for member in hypernode.members}
    assert placed == expected
    assert (found.quarantined, found.faults) == ((), ())


def test_nodes_named_as_the_descriptions_of_the_mock_are_found_too() -> None:
    nodes = [f"node{group}{number}-x" for group in (0, 1) for number in range(4 * group, 4 * group + 4)]
    found = infiniband.from_subnets([ufm.subnet([ufm.decode(MOCK.read_bytes())])], [], nodes)
    assert {member.name for hypernode in found.hypernodes for member in hypernode.members} == set(nodes)


def test_rows_with_guids_give_switches_host_ports_and_links_once() -> None:
    assert subnet(*ROWS) == EXPECTED


def test_a_page_may_be_an_object_with_its_rows_as_data() -> None:
    assert ufm.subnet([ufm.decode(json.dumps({"data": ROWS, "total_resources": 6}).encode())]) == EXPECTED


def test_pages_that_are_missing_are_a_fault_of_the_network() -> None:
    page = ufm.decode(json.dumps({"data": ROWS, "total_resources": 9}).encode())
    assert ufm.subnet([page]).faults == ("3 of 9 ports of UFM are in none of its answers: pages are missing",)
    assert ufm.subnet([page, page]).faults == ()


@given(st.randoms())
def test_the_order_of_rows_and_the_pages_do_not_matter(order: random.Random) -> None:
    rows = [*ROWS]
    order.shuffle(rows)
    cut = order.randrange(7)
    pages = [rows[:cut], rows[cut:]]
    assert ufm.subnet(ufm.decode(json.dumps(page).encode()) for page in pages) == EXPECTED


def test_a_switch_of_two_names_has_the_first_in_any_order() -> None:
    renamed = {**ROWS[5], "system_name": "a-spine"}
    assert subnet(*ROWS, renamed) == subnet(renamed, *ROWS)


def test_names_of_switches_stand_for_guids_that_a_row_lacks() -> None:
    rows = [{key: value for key, value in row.items() if key != "peer_node_guid"} for row in ROWS]
    assert subnet(*rows) == EXPECTED


def test_without_any_guid_switches_and_nodes_have_their_names() -> None:
    rows = [{key: value for key, value in row.items() if "guid" not in key and key != "systemID"} for row in ROWS]
    assert subnet(*rows) == Subnet(
        {"leaf-1": "leaf-1", "spine-1": "spine-1"},
        (HostPort("leaf-1", words=("gpu-1",), host="gpu-1", adapter="mlx5_0"),),
        (Link("leaf-1", "spine-1", 2),),
    )


def test_the_name_of_a_modular_switch_stands_for_none_of_its_switches() -> None:
    other = switch(guid="2c5e0100000000aa", system_name="leaf-1", systemID=LEAF)
    rows = [{**ROWS[0], "peer_node_guid": None}, *ROWS[1:], other]
    found = subnet(*rows)
    assert found.ports == ()
    assert found.faults == ("1 ports of hosts do not count: UFM names a system of several switches for each",)


def test_an_aggregation_node_is_part_of_its_switch() -> None:
    named = computer(guid="01", node_description="Mellanox Technologies Aggregation Node", peer_node_guid=LEAF)
    unnamed = computer(guid="02", systemID=LEAF, node_description="AN", peer_node_guid=LEAF)
    assert subnet(*ROWS, named, unnamed) == EXPECTED


def test_a_cable_between_two_hosts_and_a_gateway_are_ignored() -> None:
    between = computer(guid="03", system_name="gpu-2", peer_node_name="gpu-1", peer_node_guid=PORT)
    gateway = {"description": "Gateway IB Port", "guid": "04", "peer_node_guid": LEAF}
    assert subnet(*ROWS, between, gateway, {}, computer()) == EXPECTED


@pytest.mark.parametrize("guid", ["", None, "0x0", "xyz", "1" * 17, "0000000000000000"])
def test_an_impossible_guid_is_none(guid: str | None) -> None:
    (port,) = subnet({**ROWS[0], "guid": guid, "systemID": guid}).ports
    assert (port.port_guid, port.system_guid) == ("", "")


def test_a_network_from_ufm_has_the_groups_that_ibnetdiscover_gives() -> None:
    network = Rails(groups=3, hosts_each=4, rails=3, spines=2)
    made = cabling(network)
    rows = [
        computer(guid=guid, system_name=made.descriptions[guid].split()[0], peer_node_guid=leaf)
        for guid, leaf in made.plugged
    ]
    for first, second in made.links:
        rows += [switch(guid=first, peer_guid=second), switch(guid=second, peer_guid=first)]
    fabrics = [node_fabric("renamed", *(guid for guid, _ in made.plugged[:3]))]
    nodes = ["renamed", *(name for name, *_ in network.hosts)]
    found = infiniband.from_subnets([subnet(*rows)], fabrics, nodes)
    leaves = {each.name: len(each.members) for each in found.hypernodes if each.tier_name == "leaf"}
    assert leaves == {leaf_guid(0, group, 0): 4 for group in range(3)}
    assert "renamed" in {member.name for member in found.hypernodes[0].members}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "was truncated"),
        (b"<html>", "JSON is malformed"),
        (b"{}", "missing required field `data`"),
        (b'{"data": {}}', "Expected `array`, got `object`"),
        (b"[[]]", "Expected `object`, got `array`"),
        (b'[{"guid": 7}]', "Expected `str | null`, got `int`"),
        (b'[{"guid": "\xff"}]', "'utf-8' codec can't decode"),
        (b"[" * 99_999, "Expected `object`, got `array`"),
        (b'[{"x": ' + b"[" * 99_999, "maximum recursion depth exceeded"),
        (b"[{},", "was truncated"),
    ],
)
def test_what_is_no_list_of_ports_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(OutputUnreadable, match=re.escape(problem)):
        ufm.decode(text)


def test_too_many_bytes_values_or_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputUnreadable, match="objects"):
        ufm.decode(b"[" + b",".join([b"{}"] * 9_999) + b"]")
    monkeypatch.setattr(ufm, "MAX_ROWS", 5)
    with pytest.raises(OutputUnreadable, match="more than 5 ports"):
        subnet(*ROWS)
    monkeypatch.setattr(ufm, "MAX_PAGE_BYTES", 5)
    with pytest.raises(OutputUnreadable, match="limit is 5"):
        ufm.decode(b"[{}, {}]")


def test_a_refusal_has_no_content() -> None:
    with pytest.raises(OutputUnreadable) as caught:
        ufm.decode(b'[{"guid": {"secret-name": 1}, "system_name": "secret-name"}]')
    assert "secret" not in str(caught.value)
