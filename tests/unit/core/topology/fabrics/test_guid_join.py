"""Host ports become ports of nodes: by GUID, by name where no NodeFabric names a GUID, by neither if two claim it."""

import random
from collections.abc import Sequence

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics.guid_join import join
from gkm.topology.fabrics.network import FabricNetwork
from gkm.topology.fabrics.subnet import HostPort, Link, Subnet
from hypothesis import given
from hypothesis import strategies as st
from support.topology.node_fabrics import node_fabric

G = [f"e09d7303{number:08x}" for number in range(9)]


def port(guid: str = "", word: str = "", *, leaf: str = "leaf", system: str = "", node: str = "") -> HostPort:
    return HostPort(leaf, guid, node, system, (word,) if word else (), word)


def network(ports: Sequence[HostPort], fabrics: Sequence[NodeFabric] = (), nodes: Sequence[str] = ()) -> FabricNetwork:
    return join([Subnet({}, tuple(ports), ())], fabrics, nodes)


def hosts(*ports: HostPort, fabrics: Sequence[NodeFabric] = (), nodes: Sequence[str] = ("a", "b")) -> dict[str, int]:
    return {host: sum(cables.values()) for host, cables in network(ports, fabrics, nodes).hosts.items()}


def test_the_guid_of_a_port_or_of_its_adapter_names_the_node_whatever_the_description_says() -> None:
    assert hosts(port(G[1], "b"), fabrics=[node_fabric("a", G[1])]) == {"a": 1}
    assert hosts(port(G[1], "b", node=G[2]), fabrics=[node_fabric("a", node_guids=(G[2],))]) == {"a": 1}


def test_the_guid_of_a_port_is_more_exact_than_that_of_its_adapter() -> None:
    fabrics = [node_fabric("a", G[1]), node_fabric("b", node_guids=(G[2],))]
    assert hosts(port(G[1], node=G[2]), fabrics=fabrics) == {"a": 1}


def test_a_name_counts_only_for_a_node_of_which_no_nodefabric_has_a_guid() -> None:
    fabrics = [node_fabric("a", G[1])]
    assert hosts(port(G[1], "b"), port(G[2], "b"), fabrics=fabrics) == {"a": 1, "b": 1}
    # A forged survey has cables of its own for a node, as many as it likes.
    forged = [port(guid, "a", leaf="invented") for guid in G[2:8]]
    assert network([port(G[1], "a"), *forged], fabrics, ["a"]).hosts == {"a": {"leaf": 1}, "?a": {"invented": 6}}


def test_the_first_dns_label_of_a_node_is_its_name_unless_several_nodes_have_it() -> None:
    assert hosts(port(G[1], "a"), nodes=["a.x.example"]) == {"a.x.example": 1}
    assert hosts(port(G[1], "a"), nodes=["a.x.example", "a.y.example"]) == {"?a": 1}
    assert hosts(port(G[1], "a"), nodes=["a.x.example", "a"]) == {"a": 1}
    assert hosts(port(G[1], "a.x.example"), nodes=["a"]) == {"?a.x.example": 1}


def test_two_words_that_name_two_nodes_name_none() -> None:
    both = HostPort("leaf", G[1], "", "", ("a", "b"), "a")
    assert hosts(both) == {"?a": 1}
    assert hosts(both._replace(words=("a", "A-x"))) == {"a": 1}


def test_a_guid_of_two_nodes_counts_for_the_one_that_the_switch_names_and_is_a_fault_without_the_guid() -> None:
    fabrics = [node_fabric("a", G[1], G[2], G[3]), node_fabric("b", G[1], G[3])]
    found = network([port(G[1], "a"), port(G[2]), port(G[3], "c")], fabrics, ["a", "b", "c"])
    assert found.hosts == {"a": {"leaf": 2}, "?c": {"leaf": 1}}
    assert found.faults == ("2 GUIDs that several NodeFabrics have are used only where a switch names a node",)


def test_a_nodefabric_with_the_guids_of_others_takes_no_node_out() -> None:
    guids = {f"n{number}": f"{number:016x}" for number in range(128)}
    fabrics = [node_fabric("thief", *guids.values()), *(node_fabric(name, guid) for name, guid in guids.items())]
    ports = [port(guid, name, system=guid) for name, guid in guids.items()]
    assert hosts(*ports, fabrics=fabrics, nodes=["thief", *guids]) == dict.fromkeys(guids, 1)


def test_a_nodefabric_without_a_node_does_not_count() -> None:
    fabrics = [node_fabric("a", G[1]), node_fabric("gone", G[1])]
    assert hosts(port(G[1]), fabrics=fabrics) == {"a": 1}


def test_an_adapter_without_a_name_belongs_to_the_node_of_its_system() -> None:
    ports = [port(G[1], system=G[8]), port(G[2], system=G[8]), port(G[3], system=G[7])]
    assert hosts(*ports, fabrics=[node_fabric("a", G[1])]) == {"a": 2}
    contradicting = [node_fabric("a", G[1]), node_fabric("b", G[3])]
    three = [*ports[:2], port(G[3], system=G[8])]
    assert hosts(*three, fabrics=contradicting) == {"a": 1, "b": 1}


def test_a_host_without_a_name_counts_only_where_it_is_seen_at_several_leaves() -> None:
    found = network([port(G[1], system=G[8]), port(G[2], system=G[8], leaf="other"), port(G[3], system=G[7]), port()])
    assert found.hosts == {f"?{G[8]}": {"leaf": 1, "other": 1}}
    assert found.anonymous == {"leaf": 2}


def test_two_reports_of_a_subnet_count_once_and_contradicting_ones_both() -> None:
    link = Link("leaf", "spine", 2)
    one = Subnet({}, (port(G[1], "a"),), (link,), ("a fault",))
    renamed = Subnet({}, (port(G[1], "a-1"),), (link._replace(cables=1),))
    moved = Subnet({}, (port(G[1], "a", leaf="other"),), ())
    assert join([one, one], [], ["a"]).hosts == {"a": {"leaf": 1}}
    assert join([one, renamed], [], ["a"]).links == {"leaf": {"spine": 2}, "spine": {"leaf": 2}}
    assert join([one, renamed], [node_fabric("a", G[1])], ["a"]).hosts == {"a": {"leaf": 1}}
    assert join([one, moved], [], ["a"]).hosts == {"a": {"leaf": 1, "other": 1}}
    assert join([moved, one], [], ["a"]).faults == ("a fault",)


PORTS = st.lists(
    st.builds(
        port,
        st.sampled_from(["", *G[:4]]),
        st.sampled_from(["", "a", "b", "c"]),
        leaf=st.sampled_from(["x", "y"]),
        system=st.sampled_from(["", *G[4:6]]),
    ),
    max_size=6,
)
FABRICS = st.lists(st.builds(node_fabric, st.sampled_from("abc"), st.sampled_from(G[:4])), max_size=4)


@given(PORTS, FABRICS, st.randoms())
def test_the_order_of_ports_and_nodefabrics_does_not_matter(
    ports: list[HostPort], fabrics: list[NodeFabric], order: random.Random
) -> None:
    before = network(ports, fabrics, ["a", "b"])
    order.shuffle(ports)
    order.shuffle(fabrics)
    assert network(ports, fabrics, ["b", "a"]) == before
