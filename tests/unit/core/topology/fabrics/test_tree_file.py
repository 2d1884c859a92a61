"""Trees from files: models of topograph in their three shapes, our own shape, and files that are no trees."""

import json

import pytest
from gkm.topology.fabrics import tree_file
from gkm.topology.fabrics.domain_tree import TreeInvalid
from gkm.topology.fabrics.leaf_groups import name_of
from gkm.topology.fabrics.tree_file import parse
from gkm.topology.hypernodes import HyperNode
from hypothesis import given
from hypothesis import strategies as st

OURS = """
domains:
- name: block-1
  level: block
  domains:
  - {name: rack-1, level: rack, nodes: ["gpu-[001-003]", gpu-007]}
  - {name: rack-2, level: rack, nodes: [gpu-008]}
  nodes: [storage]
- {name: block-2, level: block}
"""
NEWER = """
switches:
  core: {metadata: {region: us-west}, switches: [spine]}
  spine: {switches: [leaf1, leaf2, empty]}
  leaf1: {nodes: ["n[1-2]", n9]}
  leaf2: {nodes: [n3]}
  empty:
capacity_blocks:
  cb1: {nodes: ["n[1-2]"], attributes: {nvlink: nvl1}}
  cb2: {}
nodes:
  n3: {capacity_block: cb3}
  n9:
"""
OLDER = """
switches:
- {name: sw2, switches: [sw11, sw12], metadata: {availability_zone: zone1}}
- {name: sw11, capacity_blocks: [cb11]}
- {name: sw12, capacity_blocks: [cb12]}
capacity_blocks:
- {name: cb11, type: GB200, nvlink: nvl1, nodes: [n11-1, n11-2]}
- {name: cb12, type: GB200, nvlink: nvl2, nodes: [n12-1, n12-2]}
"""

NEWEST = """
switches:
  core: {labels: {topology.kubernetes.io/region: us-east}, switches: [spine1, spine2]}
  spine1: {switches: [leaf1, leaf2, empty]}
  spine2: {switches: [leaf3], annotations: {accelerator.topology.test/domain: inherited}}
blocks:
- {switch: leaf1, nodes: ["N[01-02]"], annotations: {accelerator.topology.test/domain: nvl1}, labels: {zone: z1}}
- {switch: leaf1, nodes: [n3]}
- {switch: leaf2, nodes: [n4], annotations: {accelerator.topology.test/domain: nvl2}}
- {switch: leaf3, nodes: [n5, n6]}
- {nodes: [n7], annotations: {accelerator.topology.test/domain: alone}}
"""


def shown(hypernodes: tuple[HyperNode, ...]) -> dict[str, str]:
    return {
        each.name: f"{each.tier_name} {each.tier}: {' '.join(member.name for member in each.members)}"
        for each in hypernodes
    }


def test_our_shape_has_domains_in_domains() -> None:
    assert shown(parse(OURS.encode())) == {
        "rack-1": "rack 1: gpu-001 gpu-002 gpu-003 gpu-007",
        "rack-2": "rack 1: gpu-008",
        "block-1": "block 2: rack-1 rack-2 storage",
    }


def test_a_model_of_topograph_has_switches_by_name_and_blocks_within_them() -> None:
    assert shown(parse(NEWER.encode())) == {
        "cb1": "nvlink 1: n1 n2",
        "cb3": "nvlink 1: n3",
        "leaf1": "leaf 2: cb1 n9",
        "leaf2": "leaf 2: cb3",
        "spine": "spine 3: leaf1 leaf2",
        "core": "core 4: spine",
    }


def test_an_older_model_of_topograph_has_lists() -> None:
    assert shown(parse(OLDER.encode())) == {
        "cb11": "nvlink 1: n11-1 n11-2",
        "cb12": "nvlink 1: n12-1 n12-2",
        "sw11": "leaf 2: cb11",
        "sw12": "leaf 2: cb12",
        "sw2": "spine 3: sw11 sw12",
    }


def test_the_newest_model_of_topograph_has_blocks_with_switches_and_annotations() -> None:
    assert shown(parse(NEWEST.encode())) == {
        "nvl1": "nvlink 1: n01 n02",
        "nvl2": "nvlink 1: n4",
        "inherited": "nvlink 1: n5 n6",
        "alone": "nvlink 1: n7",
        "leaf1": "leaf 2: nvl1 n3",
        "leaf2": "leaf 2: nvl2",
        "leaf3": "leaf 2: inherited",
        "spine1": "spine 3: leaf1 leaf2",
        "spine2": "spine 3: leaf3",
        "core": "core 4: spine1 spine2",
    }


def newest(*blocks: tuple[str, str, dict[str, str]], switches: object = None) -> dict[str, str]:
    """Return the tree of blocks: the switch, the nodes and the end of each annotation of the accelerator."""
    listed = [
        {
            "switch": switch,
            "nodes": [nodes],
            "annotations": {f"accelerator.topology.test/{k}": v for k, v in of.items()},
        }
        for switch, nodes, of in blocks
    ]
    return shown(
        parse(json.dumps({"switches": switches or {"top": {"switches": ["a", "b"]}}, "blocks": listed}).encode())
    )


def test_the_sub_domains_of_one_accelerator_domain_are_its_nvlink_domains() -> None:
    """Switches of one domain divide it, as sub-domains do; a sub-domain may have the name of its switch."""
    assert newest(
        ("a", "n[1-2]", {"domain": "x", "sub-domain": "a"}),
        ("b", "n[3-4]", {"domain": "x", "sub-domain": "b"}),
    ) == {
        "x-a": "nvlink 1: n1 n2",
        "x-b": "nvlink 1: n3 n4",
        "a": "leaf 2: x-a",
        "b": "leaf 2: x-b",
        "top": "spine 3: a b",
    }


def test_sub_domains_of_one_name_in_two_domains_are_two() -> None:
    found = newest(("a", "n1", {"domain": "x", "sub-domain": "r"}), ("b", "n2", {"domain": "y", "sub-domain": "r"}))
    assert (found["x-r"], found["y-r"]) == ("nvlink 1: n1", "nvlink 1: n2")


def test_names_of_domains_that_look_alike_stay_apart() -> None:
    found = newest(
        ("a", "n1", {"domain": "x-y", "sub-domain": "z"}),
        ("a", "n2", {"domain": "x", "sub-domain": "y-z"}),
        ("b", "n3", {"domain": "b"}),
    )
    domains = [text for text in found.values() if text.startswith("nvlink")]
    assert sorted(domains) == ["nvlink 1: n1", "nvlink 1: n2", "nvlink 1: n3"]
    assert found["b"].startswith("leaf")


def test_an_nvlink_domain_of_several_leaves_is_in_the_switch_above_them() -> None:
    assert newest(("a", "n1", {"domain": "x"}), ("b", "n2", {"domain": "x"}), ("b", "n3", {})) == {
        "x": "nvlink 1: n1 n2",
        "b": "leaf 1: n3",
        "top": "spine 2: b x",
    }


def test_an_nvlink_domain_of_switches_that_nothing_connects_is_in_none() -> None:
    apart: dict[str, object] = {"a": {}, "b": {}}
    found = newest(("a", "n1", {"domain": "x"}), ("b", "n2", {"domain": "x"}), switches=apart)
    assert found == {"x": "nvlink 1: n1 n2"}


def test_blocks_need_no_switches() -> None:
    text = b"{blocks: [{nodes: ['n[1-2]'], annotations: {accelerator.topology.test/domain: x}}]}"
    assert shown(parse(text)) == {"x": "nvlink 1: n1 n2"}


def test_json_is_read_too() -> None:
    text = b'{"switches": {"a": {"nodes": ["n1"]}, "b": {"switches": ["a"]}}}'
    assert shown(parse(text)) == {"a": "leaf 1: n1", "b": "spine 2: a"}


def test_blocks_without_switches_stand_alone_and_capacity_of_a_node_may_come_twice() -> None:
    text = b"{capacity_blocks: {cb1: {nodes: [n1]}}, nodes: {n1: {capacity_block: cb1}, n2: {capacity_block: cb1}}}"
    assert shown(parse(text)) == {"cb1": "nvlink 1: n1 n2"}


def test_a_name_that_is_no_dns_label_is_hashed() -> None:
    (hypernode,) = parse(b'{"domains": [{"name": "Rack 1", "level": "rack", "nodes": ["n1"]}]}')
    assert hypernode.name == name_of("Rack 1")


def test_a_switch_above_leaves_of_different_height_is_above_the_highest() -> None:
    text = b"{switches: {a: {nodes: [n1]}, b: {switches: [a]}, c: {switches: [b, d]}, d: {nodes: [n2]}}}"
    assert {each.name: each.tier_name for each in parse(text)} == {"a": "leaf", "d": "leaf", "b": "spine", "c": "core"}


WRONG = {
    "nothing": ("{}", "no `domains`, no `switches`"),
    "another shape": ("[1, 2]", "another shape"),
    "no YAML": ("{secret: [", "no YAML or JSON"),
    "a key twice": ("switches: {secret: {}, secret: {}}", "line 1"),
    "two parents": ("{switches: {a: {nodes: [n]}, b: {switches: [a]}, c: {switches: [a]}}}", r"switches\[0\] is in"),
    "one parent twice": ("{switches: {a: {nodes: [n]}, b: {switches: [a, a]}}}", r"switches\[0\] is in"),
    "a node twice": (
        "{switches: {a: {nodes: [n]}, b: {nodes: [x, n]}}}",
        r"number 1 of switches\[1\] is in switches\[0\]",
    ),
    "a node in two blocks": ("{capacity_blocks: {a: {nodes: [n]}, b: {nodes: [n]}}}", "number 0 of capacity_blocks"),
    "a block across switches": (
        "{switches: {a: {nodes: [n]}, b: {nodes: [m]}}, capacity_blocks: {c: {nodes: [n, m]}}}",
        r"capacity_blocks\[0\] is in switches\[0\] and in switches\[1\]",
    ),
    "itself": ("{switches: {a: {switches: [a], nodes: [n]}}}", "lies in itself"),
    "a cycle": ("{switches: {a: {switches: [b]}, b: {switches: [c]}, c: {switches: [a]}}}", "lies in itself"),
    "undefined": ("{switches: {a: {switches: [secret]}}}", "the domain number 0 in it has no definition"),
    "a name twice": ("{switches: [{name: secret}, {name: secret}]}", r"switches\[1\] needs a unique name"),
    "no name": ("{switches: [{nodes: [n]}]}", "needs a unique name, and has no name"),
    "a block named as a switch": ("{switches: {a: {}}, capacity_blocks: {a: {nodes: [n]}}}", "the name of switches"),
    "no level": ("{domains: [{name: secret}]}", "missing required field"),
    "an illegal level": ("{domains: [{name: secret, level: Secret}]}", "another shape"),
    "its own level": (
        "{domains: [{name: a, level: x, domains: [{name: b, level: x, nodes: [n]}]}]}",
        "has the level of domain number 0",
    ),
    "an unknown switch of a block": ("{blocks: [{switch: secret, nodes: [n]}]}", r"blocks\[0\] names a switch that"),
    "a node in two of the newest blocks": (
        "{switches: {a: {}}, blocks: [{switch: a, nodes: [n]}, {nodes: [m, n]}]}",
        r"node number 1 of blocks\[1\] is in blocks\[0\]",
    ),
    "a block without nodes": ("{switches: {a: {}}, blocks: [{switch: a}]}", r"another shape: .*nodes.* `\$.blocks"),
    "two shapes at once": ("{blocks: [{nodes: [n]}], capacity_blocks: {c: {nodes: [m]}}}", "beside `blocks`"),
    "a leaf of two parents": (
        "{switches: {a: {switches: [secret]}, b: {switches: [secret]}}, blocks: [{switch: secret, nodes: [n]}]}",
        "is in switches",
    ),
    "a cycle above a block": (
        "{switches: {a: {switches: [b]}, b: {switches: [a]}}, blocks: [{switch: a, nodes: [n]}]}",
        "lies in itself",
    ),
    "blocks that place no node": ("{blocks: [{nodes: [n]}]}", "no block with a switch or an accelerator domain"),
    "no node": ("{switches: {a: {nodes: ['Secret!']}}}", r"switches\[0\]: nodes\[0\] holds no names"),
    "a million nodes": ("{switches: {a: {nodes: ['secret[1-999999]']}}}", "or too many"),
    "aliases": ("{switches: {a: &x {nodes: [n]}, b: *x}}", "no YAML or JSON within the limits"),
    "deep": ('{"domains":' * 99, "no YAML or JSON within"),
    "deep lists": ("[" * 99_999, "no YAML or JSON within"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_tree_is_refused_with_the_position_and_without_its_names(wrong: str) -> None:
    text, message = WRONG[wrong]
    with pytest.raises(TreeInvalid, match=message) as caught:
        parse(text.encode())
    assert "secret" not in str(caught.value).lower()


def test_a_chain_of_switches_is_refused_and_not_followed_by_recursion() -> None:
    chain = ", ".join(f"s{number}: {{switches: [s{number + 1}]}}" for number in range(5_000))
    with pytest.raises(TreeInvalid, match="more than 64 levels"):
        parse(f"{{switches: {{{chain}, s5000: {{nodes: [n]}}}}}}".encode())


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_file, "MAX_BYTES", 10)
    with pytest.raises(TreeInvalid, match="limit is 10"):
        parse(OURS.encode())


def test_the_nodes_of_a_cluster_fit() -> None:
    racks = "\n".join(
        f"- {{name: rack-{rack}, level: rack, nodes: [{', '.join(f'n{rack}-{node}' for node in range(50))}]}}"
        for rack in range(300)
    )
    assert sum(len(each.members) for each in parse(f"domains:\n{racks}".encode())) == 15_000


NAMES = st.sampled_from("abcdef")
SWITCHES = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {}, optional={"switches": st.lists(NAMES, max_size=2), "nodes": st.lists(st.sampled_from(["n1", "n2", "n3"]))}
    ),
)


@given(SWITCHES, st.dictionaries(NAMES, st.fixed_dictionaries({"nodes": st.lists(st.sampled_from(["n1", "n2"]))})))
def test_what_is_read_is_a_tree(switches: object, blocks: object) -> None:
    try:
        found = parse(repr({"switches": switches, "capacity_blocks": blocks}).encode())
    except TreeInvalid:
        return
    tiers = {each.name: each.tier for each in found}
    members = [member for each in found for member in each.members]
    assert len(tiers) == len(found)
    assert len(set(members)) == len(members)
    assert all(each.members for each in found)
    inner = [(each, member.name) for each in found for member in each.members if member.kind == "HyperNode"]
    assert all(each.tier > tiers[name] for each, name in inner)
