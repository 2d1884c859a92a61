"""The tree as Slurm's topology.yaml, read back by the rules of its manual page."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from gkm.topology.trees.slurm import NoDomains, block_topology, tree_topology
from hypothesis import given
from hypothesis import strategies as st
from support.topology.rendered import SETTINGS, Places, hypernodes, settings, tree
from support.topology.volcano_rules import nodes_of

Json = dict[str, Any]
LONGEST_NAME = 64


def switches(places: Places) -> dict[str, Json]:
    (file,) = tree_topology(tree(places), SETTINGS, "gkm")
    assert [*file] == ["topology", "cluster_default", "tree"]
    listed = file["tree"]["switches"]
    found = {each["switch"]: each for each in listed}
    assert len(found) == len(listed)
    return found


def below(found: Mapping[str, Json], switch: str) -> set[str]:
    """Return the nodes of a switch, which has switches or nodes."""
    each = found[switch]
    assert ("children" in each) != ("nodes" in each)
    if "nodes" in each:
        return set(each["nodes"].split(","))
    return set().union(*(below(found, child) for child in each["children"].split(",")))


PLACES = {"n1": ("r1", "b1"), "n2": ("r1", "b1"), "n3": ("r2", "b1"), "n4": ("", "b1"), "n5": ("", "")}


def test_nodes_beside_inner_domains_have_a_switch_and_nodes_without_a_domain_have_none() -> None:
    found = switches(PLACES)
    assert {name: below(found, name) for name in ("rack-r1", "rack-r2", "block-b1")} == {
        "rack-r1": {"n1", "n2"},
        "rack-r2": {"n3"},
        "block-b1": {"n1", "n2", "n3", "n4"},
    }
    (direct,) = found.keys() - {"rack-r1", "rack-r2", "block-b1"}
    assert found[direct] == {"switch": direct, "nodes": "n4"}
    assert "n5" not in str(found)


def test_domains_without_a_parent_have_a_common_switch_and_a_single_one_needs_none() -> None:
    assert "gkm" not in switches(PLACES)
    found = switches({**PLACES, "n6": ("r3", "b2"), "n7": ("r4", "")})
    assert set(found["gkm"]["children"].split(",")) == {"block-b1", "block-b2", "rack-r4"}
    assert below(found, "gkm") == {"n1", "n2", "n3", "n4", "n6", "n7"}


NAMES = st.sampled_from(["r1", "r2", "R.3", "", "x" * 63, "1-2"])


@given(st.dictionaries(st.sampled_from([f"n{at}" for at in range(9)]), NAMES, min_size=1, max_size=9))
def test_every_switch_has_the_nodes_of_the_hypernode_of_its_name(racks: dict[str, str]) -> None:
    places = {node: (rack, f"b{len(rack) % 2}") for node, rack in racks.items()}
    found, wanted = switches(places), hypernodes(places)
    assert wanted.keys() <= found.keys()
    assert {name: below(found, name) for name in wanted} == {name: nodes_of(wanted, name) for name in wanted}
    listed = [node for each in found.values() for node in each.get("nodes", "").split(",") if node]
    assert len(listed) == len(set(listed))
    assert all(len(name) <= LONGEST_NAME for name in found)


def blocks(places: Places) -> Json:
    (file,) = block_topology(tree(places), SETTINGS, "gkm")
    found: Json = file["block"]
    sizes = [len(each["nodes"].split(",")) for each in found["blocks"]]
    assert not sizes or found["block_sizes"][0] == min(sizes)
    for size, larger in pairwise(found["block_sizes"]):
        assert larger % size == 0
        assert (larger // size).bit_count() == 1
    return found


def test_blocks_are_the_domains_of_the_closest_level_and_the_smallest_is_the_base() -> None:
    assert blocks(PLACES) == {
        "block_sizes": [1, 2],
        "blocks": [{"block": "rack-r1", "nodes": "n1,n2"}, {"block": "rack-r2", "nodes": "n3"}],
    }


def test_a_wider_level_is_a_size_only_if_its_domains_have_equally_many_blocks() -> None:
    even = {f"n{at}": (f"r{at // 2}", f"b{at // 8}") for at in range(16)}
    assert blocks(even)["block_sizes"] == [2, 8]
    assert blocks(even | {"more": ("r8", "b1")})["block_sizes"] == [1]
    three = {f"n{at}": (f"r{at // 2}", "b0") for at in range(6)}
    assert blocks(three)["block_sizes"] == [2]


def test_names_can_be_hashed() -> None:
    hashed = settings("rack", "block", hashed=True)
    names = [each["switch"] for each in tree_topology(tree(PLACES, hashed), hashed, "gkm")[0]["tree"]["switches"]]
    assert not any(name.endswith(("-r1", "-r2", "-b1")) for name in names)


def test_slurm_cannot_start_without_a_switch_or_a_block() -> None:
    with pytest.raises(NoDomains, match="no node is in a domain of the closest level, rack"):
        block_topology(tree({"n1": ("", "b1")}), SETTINGS, "gkm")
    with pytest.raises(NoDomains, match="no node is in a domain of any level: Slurm would have no switch"):
        tree_topology(tree({"n1": ("", "")}), SETTINGS, "gkm")


def test_a_number_that_slurm_cannot_hold_is_not_at_the_end_of_a_name() -> None:
    """slurmctld 26.05.5 finds `rack-99999999999999999999` in children as `rack-18446744073709551615`."""
    large, small = "9" * 20, "9" * 19
    places = {"n1": (f"r{large}", "b1"), "n2": (f"r{small}", "b1")}
    found = switches(places)
    assert found.keys() == {f"rack-r{large}-", f"rack-r{small}", "block-b1"}
    assert set(found["block-b1"]["children"].split(",")) == {f"rack-r{large}-", f"rack-r{small}"}
    assert {each["block"] for each in blocks(places)["blocks"]} == {f"rack-r{large}-", f"rack-r{small}"}
