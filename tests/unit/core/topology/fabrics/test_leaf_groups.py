"""Leaf groups of small networks, cable by cable: ties, foreign hosts, names, levels and faults."""

import re
from collections.abc import Mapping

import pytest
from gkm.topology.fabrics import leaf_groups, rails
from gkm.topology.fabrics.levels import MAX_LEVELS, switch_levels, tier_name
from gkm.topology.fabrics.network import FabricDiscovery, FabricNetwork, MatchedHosts
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.quarantine import Quarantined, QuarantineReason


def both(*pairs: str) -> Mapping[str, Mapping[str, int]]:
    """Return links between switches, each as `a-b` or `a-b*3`."""
    links: dict[str, dict[str, int]] = {}
    for pair in pairs:
        ends, _, number = pair.partition("*")
        first, second = ends.split("-")
        links.setdefault(first, {})[second] = links.setdefault(second, {})[first] = int(number or 1)
    return links


def cables(**hosts: str) -> Mapping[str, Mapping[str, int]]:
    """Return the cables of hosts: `n1="ab"` has one to each of two switches, `n1="aab"` two and one."""
    return {host.replace("x_", "?"): {switch: to.count(switch) for switch in to} for host, to in hosts.items()}


def groups(found: FabricDiscovery) -> dict[str, list[str]]:
    return {hypernode.name: [member.name for member in hypernode.members] for hypernode in found.hypernodes}


def discover(network: FabricNetwork, existing: tuple[str, ...] = ()) -> FabricDiscovery:
    return leaf_groups.discover(network, [host for host in network.hosts if not host.startswith("?")], existing)


def test_a_classic_tree_has_a_group_for_each_leaf_and_the_spines() -> None:
    found = discover(FabricNetwork(cables(n1="aaa", n2="aaa", n3="bbb"), both("a-s", "b-s", "a-t", "b-t")))
    nodes = [Member("Node", name) for name in ("n1", "n2", "n3")]
    assert found.hypernodes == (
        HyperNode("a", "leaf", (nodes[0], nodes[1]), 1),
        HyperNode("b", "leaf", (nodes[2],), 1),
        HyperNode("s", "spine", (Member("HyperNode", "a"), Member("HyperNode", "b")), 2),
    )


def test_two_homes_are_one_group_and_a_switch_between_them_changes_nothing() -> None:
    homes = cables(n1="ab", n2="ab", n3="cd", n4="cd")
    assert groups(discover(FabricNetwork(homes))) == {"a": ["n1", "n2"], "c": ["n3", "n4"]}
    assert groups(discover(FabricNetwork(homes, both("a-b*2", "c-d*2")))) == {"a": ["n1", "n2"], "c": ["n3", "n4"]}


def test_equal_numbers_of_cables_quarantine_the_node_with_the_number() -> None:
    found = discover(FabricNetwork(cables(n1="aab", n2="a", n3="b", n4="ab")))
    assert groups(found) == {"a": ["n1", "n2"], "b": ["n3"]}
    (tied,) = found.quarantined
    assert tied == Quarantined("n4", QuarantineReason.EQUAL_CABLES, tied.message)
    assert "1 cable to it each" in tied.message


def test_a_foreign_host_with_equal_numbers_is_of_no_interest() -> None:
    found = discover(FabricNetwork(cables(n1="a", n2="b", x_other="ab")))
    assert (groups(found), found.quarantined) == ({"a": ["n1"], "b": ["n2"]}, ())


def test_foreign_hosts_decide_with_which_leaves_form_a_group() -> None:
    hosts = cables(n1="a", n2="b", x_1="ab", x_2="ab", x_3="ab")
    assert groups(discover(FabricNetwork(hosts))) == {"a": ["n1", "n2"]}


def test_a_group_with_equal_cables_to_two_above_has_no_parent_and_is_a_fault_without_its_name() -> None:
    links = both("a-s", "b-s", "c-t", "d-t", "e-s", "e-t")
    found = discover(FabricNetwork(cables(n1="a", n2="b", n3="c", n4="d", n5="e"), links))
    assert groups(found)["s"] == ["a", "b"]
    assert groups(found)["t"] == ["c", "d"]
    assert found.faults == ("1 group below level spine has no parent: equal numbers of cables lead to several",)


def test_a_node_at_a_spine_lies_in_the_group_of_the_spine() -> None:
    hosts = cables(n1="a", n2="b", n3="c", n4="s")
    found = discover(FabricNetwork(hosts, both("a-s", "b-s", "c-s")))
    assert groups(found)["s"] == ["a", "b", "c", "n4"]


def test_a_switch_with_as_many_hosts_as_switches_with_hosts_is_a_leaf() -> None:
    found = discover(FabricNetwork(cables(n1="a", n2="b", n3="s", n4="s"), both("a-s", "b-s")))
    assert groups(found) == {"a": ["n1"], "b": ["n2"], "s": ["n3", "n4"]}


def test_anonymous_adapters_make_a_leaf_and_no_group() -> None:
    network = FabricNetwork(cables(n1="a"), both("a-s", "b-s"), {"b": 3})
    assert switch_levels(network) == [{"a", "b"}, {"s"}]
    assert groups(discover(network)) == {"a": ["n1"]}


def test_a_pod_with_one_group_has_its_spine_if_a_core_joins_pods() -> None:
    found = discover(FabricNetwork(cables(n1="a", n2="b"), both("a-s", "b-t", "s-k", "t-k")))
    assert [(hypernode.name, hypernode.tier_name) for hypernode in found.hypernodes] == [
        ("a", "leaf"),
        ("b", "leaf"),
        ("s", "spine"),
        ("t", "spine"),
        ("k", "core"),
    ]


def test_an_existing_name_of_any_switch_of_a_group_stays() -> None:
    network = FabricNetwork(cables(n1="abc", n2="abc", n3="def"))
    assert groups(discover(network, ("b", "f", "gone"))) == {"b": ["n1", "n2"], "f": ["n3"]}
    assert groups(discover(network, ("c", "b"))) == {"b": ["n1", "n2"], "d": ["n3"]}


@pytest.mark.parametrize("switch", ["00:1b:21:aa:bb:cc", "Leaf_1", "a" * 64, "", "switch-0123456789abcdef", "é", "a.b"])
def test_a_switch_that_is_no_label_gives_a_hash_that_no_label_can_be(switch: str) -> None:
    name = leaf_groups.name_of(switch)
    assert re.fullmatch("switch-[0-9a-f]{16}", name)
    assert leaf_groups.name_of(name) != name


def test_levels_have_names_and_a_limit() -> None:
    assert [tier_name(level) for level in range(5)] == ["leaf", "spine", "core", "tier-4", "tier-5"]
    chain = FabricNetwork(cables(n1="0"), both(*(f"{number}-{number + 1}" for number in range(40))))
    assert len(switch_levels(FabricNetwork({"n1": {"0": 1}}, chain.links))) == MAX_LEVELS


def test_switches_that_all_lead_to_one_another_are_leaves() -> None:
    everyone = "abcdefg"
    links = both(*(f"{one}-{other}" for one in everyone for other in everyone if one < other))
    found = discover(FabricNetwork({f"n-{switch}": {switch: 1} for switch in everyone}, links))
    assert groups(found) == {switch: [f"n-{switch}"] for switch in everyone}


def test_a_network_without_order_is_no_network_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rails, "MAX_WORK", 10)
    with pytest.raises(rails.TooIrregular):
        discover(FabricNetwork(cables(n1="ab", n2="bc", n3="ca"), faults=("another",)))


def test_no_network_has_no_groups() -> None:
    assert discover(FabricNetwork({})) == FabricDiscovery(hosts=MatchedHosts())
