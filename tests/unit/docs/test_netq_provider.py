"""The example provider of NetQ: hosts, leaves and spines by names, without the network for management."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gkm.topology.fabrics import guid_join, leaf_groups
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.providers import ProviderFailed

_EXAMPLES = Path(__file__).parents[3] / "docs" / "reference" / "examples"
netq: Any = SimpleNamespace(**runpy.run_path(str(_EXAMPLES / "netq_provider.py")))
SERVERS = ("server01", "server02", "server03", "server04")


def row(ends: str) -> dict[str, Any]:
    """Return the row of `leaf01:swp1 server01:eth1`."""
    (hostname, ifname), (peer, port) = (end.split(":") for end in ends.split())
    return {
        "hostname": hostname,
        "ifname": ifname,
        "peerHostname": peer,
        "peerIfname": port,
        "lastChanged": 1600375701.0,
    }


CABLES = [
    "server01:eth1 leaf01:swp1",
    "server01:eth2 leaf02:swp1",
    "server02:ens1f0 leaf01:swp2",
    "server02:enp2s0 leaf02:swp2",
    "server03:eth1 leaf03:swp1",
    "server04:eth1 leaf03:swp2",
    "storage01:eth1 leaf03:swp3",
    "leaf01:swp51 spine01:swp1",
    "leaf02:swp51 spine01:swp2",
    "leaf03:swp51 spine01:swp3",
    "leaf01:swp49 leaf02:swp49",
]
MANAGEMENT = [
    f"{device}:eth0 oob-mgmt-switch:swp{number}" for number, device in enumerate(("leaf01", "leaf03", "spine01"))
]


def rows(*ends: str) -> list[Any]:
    answer = {"lldp": [row(each) for each in ends], "truncatedResult": False}
    return list(netq.decode(json.dumps(answer).encode()))


def discover(found: list[Any], nodes: tuple[str, ...] = SERVERS, counted: Counted = EVERY_CABLE) -> FabricDiscovery:
    return leaf_groups.discover(netq.network(found, guid_join.by_name(nodes), counted), nodes)


def groups(found: list[Any], nodes: tuple[str, ...] = SERVERS) -> dict[str, list[str]]:
    discovery = discover(found, nodes)
    return {hypernode.name: [member.name for member in hypernode.members] for hypernode in discovery.hypernodes}


EXPECTED = {"leaf01": list(SERVERS[:2]), "leaf03": list(SERVERS[2:]), "spine01": ["leaf01", "leaf03"]}


def test_hosts_leaves_and_spines_from_either_end_of_each_cable_or_both() -> None:
    back = [" ".join(reversed(each.split())) for each in CABLES]
    assert groups(rows(*CABLES)) == EXPECTED
    assert groups(rows(*back)) == EXPECTED
    assert groups(rows(*CABLES, *back)) == EXPECTED


def test_the_network_for_management_of_switches_does_not_count() -> None:
    assert groups(rows(*CABLES, *MANAGEMENT)) == EXPECTED


def test_interfaces_of_hosts_may_be_left_out() -> None:
    management = [f"{server}:eth0 oob-mgmt-switch:swp{number}" for number, server in enumerate(SERVERS)]
    found = discover(rows(*CABLES, *management), counted=Counted(["!eth0"]))
    assert {hypernode.name for hypernode in found.hypernodes} == set(EXPECTED)
    assert discover(rows(*CABLES, *management), counted=Counted(switches=["!oob*"])) == found


def test_a_foreign_host_is_no_switch() -> None:
    assert groups(rows(*CABLES), SERVERS[:2]) == {"leaf01": list(SERVERS[:2])}


def test_a_node_is_a_host_whatever_its_interfaces_are_named() -> None:
    ends = [each.replace("server03:eth1", "server03:rdma0") for each in CABLES]
    assert groups(rows(*ends)) == EXPECTED


def test_nodes_have_their_first_dns_label_in_netq() -> None:
    nodes = tuple(f"{server}.example.com" for server in SERVERS)
    assert groups(rows(*CABLES), nodes)["leaf01"] == list(nodes[:2])


def test_a_list_of_rows_is_read_and_a_cut_one_is_not() -> None:
    assert len(netq.decode(json.dumps([row(each) for each in CABLES]).encode())) == len(CABLES)
    with pytest.raises(OutputUnreadable, match="left out rows"):
        netq.decode(json.dumps({"lldp": [], "truncatedResult": True}).encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "was truncated"),
        (b"{}", "missing required field `lldp`"),
        (b'{"lldp": {}}', "Expected `array`, got `object`"),
        (b'[{"hostname": 1}]', "Expected `str | null`, got `int`"),
        (b"[" * 99_999, "Expected `object`, got `array`"),
        (b'[{"x": ' + b"[" * 99_999, "maximum recursion depth exceeded"),
        (b"[" + b"{}," * 9_999 + b"{}]", "holds more than the 2985 objects"),
    ],
)
def test_what_netq_does_not_print_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(OutputUnreadable, match=re.escape(problem)):
        netq.decode(text)


def test_rows_with_missing_fields_are_no_cables() -> None:
    rows = b'{}, {"hostname": "server01"}, {"hostname": null, "peerHostname": "leaf01"}'
    cable = b'{"hostname": "leaf01", "ifname": "swp1", "peerHostname": "leaf02", "peerIfname": "swp1"}'
    assert groups(netq.decode(b"[%b, %b]" % (rows, cable))) == {}
    with pytest.raises(OutputUnreadable, match="no row in it names both ends of a cable"):
        netq.decode(b"[%b]" % rows)


@pytest.mark.parametrize(
    ("config", "problem"),
    [({}, "missing required field `file`"), ({"file": "/x", "intervals": 1}, "unknown field `intervals`")],
)
def test_a_wrong_config_is_named(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProviderFailed, match=problem):
        netq.NetQ(config, {})


def test_a_file_that_is_not_there_fails_the_provider(tmp_path: Path) -> None:
    with pytest.raises(ProviderFailed, match="cannot read its file"):
        netq.NetQ({"file": str(tmp_path / "none")}, {}).read([], frozenset())
