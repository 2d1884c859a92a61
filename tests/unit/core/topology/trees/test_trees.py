"""HyperNodes, Topologies and labels of a tree."""

import json
import re
from collections.abc import Mapping

import pytest
from gkm.api.topology_settings import HyperNodes, Topology, TopologyLevel
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.placements import Placements
from gkm.topology.trees.merge import build_tree
from gkm.topology.trees.names import hypernode_name, label_value
from gkm.topology.trees.topologies import grove, kai, kueue, node_features, node_labels
from gkm.topology.trees.tree import Tree
from gkm.topology.trees.volcano import manifest, volcano
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.topology.volcano_rules import doubly_placed, nodes_of, violations, with_two_tiers

LEVELS = [TopologyLevel("nvlink"), TopologyLevel("rack", unique="parent"), TopologyLevel("block")]
SETTINGS = Topology(levels=LEVELS, kueue="gpu", kai="fabric", node_labels=True)
HASHED = Topology(levels=LEVELS, hyper_nodes=HyperNodes(enabled=True, hash_names=True))
# Kubernetes, "Object Names and IDs" and "Labels and Selectors".
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def tree_of(places: Mapping[str, tuple[str, ...]], settings: Topology = SETTINGS) -> Tree:
    return build_tree([("labels", Placements(places))], settings)


def members(hypernode: HyperNode) -> list[str]:
    return [f"{member.kind}/{member.name}" for member in hypernode.members]


def test_own_domains_are_not_written_and_their_nodes_join_the_next_domain() -> None:
    found = volcano(tree_of({"n1": ("d1", "", "b1"), "n2": ("", "", "b1"), "n3": ("", "", "")}), SETTINGS)

    assert {name: members(each) for name, each in found.hypernodes.items()} == {
        "nvlink-d1": ["Node/n1"],
        "block-b1": ["HyperNode/nvlink-d1", "Node/n2"],
    }


def test_names_change_only_where_two_clusters_share_one() -> None:
    settings = Topology(node_labels=True, kueue="gpu")
    alone = {"n1": ("d1", "b1", "c1", "eu"), "n2": ("d2", "b1", "c1", "eu")}
    one, both = tree_of(alone, settings), tree_of({**alone, "n3": ("d1", "b2", "c2", "eu")}, settings)

    readable = {"nvlink-d1", "nvlink-d2", "block-b1", "cluster-c1", "region-eu"}
    assert set(volcano(one, settings).hypernodes) == readable
    found = volcano(both, settings).hypernodes
    assert readable - set(found) == {"nvlink-d1"}
    shared = {name: members(each) for name, each in found.items() if name.startswith("nvlink-d1-")}
    assert sorted(shared.values()) == [["Node/n1"], ["Node/n3"]]
    assert all(SUBDOMAIN.fullmatch(name) for name in found)
    labels = {name: each["level.gkm.io/nvlink"] for name, each in node_labels(both, settings).items()}
    assert len(set(labels.values())) == 3
    assert labels["n2"] == "d2"


def test_tiers_are_positions_of_levels_whether_or_not_levels_have_domains() -> None:
    found = volcano(tree_of({"n1": ("d1", "", "b1")}), SETTINGS)

    assert {each.tier_name: each.tier for each in found.hypernodes.values()} == {"nvlink": 1, "block": 3}


def test_a_node_whose_name_is_too_long_for_volcano_is_in_no_hypernode_and_its_neighbors_are() -> None:
    long = "n" * 64

    found = volcano(tree_of({long: ("d1", "", "b1"), "n" * 63: ("d1", "", "b1")}), SETTINGS)

    assert found.unlisted == (long,)
    assert {member.name for one in found.hypernodes.values() for member in one.members if member.kind == "Node"} == {
        "n" * 63
    }


def test_a_hypernode_that_no_api_server_accepts_is_left_out_and_named() -> None:
    places = {f"{'n' * 50}-{number}": ("", "", "b1") for number in range(9_500)} | {"m1": ("d1", "", "b2")}

    found = volcano(tree_of(places), SETTINGS)

    assert found.too_large == ("block-b1",)
    assert set(found.hypernodes) == {"nvlink-d1", "block-b2"}


def test_the_size_that_counts_is_not_below_that_of_the_object() -> None:
    places = {f"node-{number}": ("", "", "b1") for number in range(9_000)}
    found = volcano(tree_of(places), SETTINGS).hypernodes["block-b1"]

    assert len(json.dumps(manifest(found), separators=(",", ":"))) < 1 << 20


def test_a_manifest_names_its_source_tier_and_members() -> None:
    assert manifest(HyperNode("rack-r1", "rack", (Member("Node", "n1"),), 2)) == {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "rack-r1", "labels": {"volcano.sh/network-topology-source": "gkm"}},
        "spec": {
            "tier": 2,
            "tierName": "rack",
            "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}],
        },
    }


def test_kueue_and_kai_read_the_levels_from_the_widest() -> None:
    keys = ["level.gkm.io/block", "level.gkm.io/rack", "level.gkm.io/nvlink", "kubernetes.io/hostname"]
    levels = {"levels": [{"nodeLabel": key} for key in keys]}

    assert kueue(SETTINGS) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "gpu"},
        "spec": levels,
    }
    assert kueue(SETTINGS, "v1beta1")["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert kai(SETTINGS) == {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": levels,
    }


def test_grove_gets_the_levels_with_names_that_it_accepts_and_the_topology_of_kai() -> None:
    """Its CRD: a name begins with a letter, a key has at most 63 characters, both are unique."""
    levels = [TopologyLevel(name) for name in ("nvlink", "4th", "host", "level-4th")]
    chosen = structs.replace(SETTINGS, levels=levels, kai="")
    found = grove(chosen, "gkm")["spec"]
    assert [(each["domain"], each["key"]) for each in found["levels"]] == [
        ("level-level-4th", "level.gkm.io/level-4th"),
        ("level-host", "level.gkm.io/host"),
        ("level-4th", "level.gkm.io/4th"),
        ("nvlink", "level.gkm.io/nvlink"),
        ("host", "kubernetes.io/hostname"),
    ]
    assert "schedulerTopologyBindings" not in found
    bound = grove(SETTINGS, "gkm")["spec"]
    assert bound["schedulerTopologyBindings"] == [{"schedulerName": "kai-scheduler", "topologyReference": "fabric"}]
    keys = [{"nodeLabel": each["key"]} for each in bound["levels"]]
    assert keys == kai(SETTINGS)["spec"]["levels"]


def test_node_features_carry_the_labels_of_each_node() -> None:
    tree = tree_of({"n2": ("d1", "", "B.1"), "n1": ("d1", "", "B.1"), "x" * 64: ("d1", "", "B.1")})
    found = [*node_features(tree, SETTINGS, "nfd")]
    assert [each["metadata"]["labels"] for each in found] == [
        {"nfd.node.kubernetes.io/node-name": "n1"},
        {"nfd.node.kubernetes.io/node-name": "n2"},
    ]
    assert [each["spec"]["labels"] for each in found] == [node_labels(tree, SETTINGS)[node] for node in ("n1", "n2")]


def test_every_node_has_a_label_for_each_level() -> None:
    labels = node_labels(tree_of({"n1": ("d1", "", "B.1"), "n2": ("d1", "", "B.1"), "n3": ("", "", "")}), SETTINGS)

    assert labels["n1"] == labels["n2"]
    assert (labels["n1"]["level.gkm.io/nvlink"], labels["n1"]["level.gkm.io/block"]) == ("d1", "B.1")
    assert labels["n1"]["level.gkm.io/rack"].startswith("node-")
    assert all(value.startswith("node-") for value in labels["n3"].values())


def test_racks_of_one_name_in_two_blocks_have_different_values_and_names() -> None:
    tree = tree_of({"n1": ("", "r1", "b1"), "n2": ("", "r1", "b2")})
    labels = node_labels(tree, SETTINGS)

    assert labels["n1"]["level.gkm.io/rack"] != labels["n2"]["level.gkm.io/rack"]
    assert len(volcano(tree, SETTINGS).hypernodes) == 4


def test_hashed_names_have_nothing_of_the_providers() -> None:
    tree = tree_of({"n1": ("secretgpu", "secretrack", "secretblock")}, HASHED)

    written = json.dumps([manifest(each) for each in volcano(tree, HASHED).hypernodes.values()])
    assert "secret" not in written
    assert "secret" not in json.dumps(node_labels(tree, HASHED))


@pytest.mark.parametrize("name", ["b1", "clique.32766", "0xb8cef60300f7d2a4"])
def test_a_legal_name_is_readable(name: str) -> None:
    assert hypernode_name("block", name, name, ["block"], hashed=False) == f"block-{name}"


@pytest.mark.parametrize("name", ["B1", "a_b", "é", "x" * 300, "a..b", "-", "a" + "-0123456789" * 2])
def test_an_illegal_name_is_legal_with_a_digest(name: str) -> None:
    found = hypernode_name("block", name, name, ["block"], hashed=False)

    assert SUBDOMAIN.fullmatch(found)
    assert len(found) <= 63


NAMES = st.text(st.sampled_from("aB1-_./: %0"), min_size=1, max_size=6) | st.text(min_size=1, max_size=80)
LEVEL_NAMES = ["a", "a-b", "b", "rack", "x" * 20]


@given(domains=st.sets(st.tuples(st.sampled_from(LEVEL_NAMES), NAMES), max_size=8), hashed=st.booleans())
def test_names_are_legal_and_never_collide(*, domains: set[tuple[str, str]], hashed: bool) -> None:
    names = [hypernode_name(level, name, name, LEVEL_NAMES, hashed=hashed) for level, name in domains]
    values = [(level, label_value(level, name, name, hashed=hashed)) for level, name in domains]

    assert len(set(names)) == len(set(values)) == len(domains)
    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= 63 for name in names)
    assert all(LABEL_VALUE.fullmatch(value) for _, value in values)


def test_no_provider_can_take_the_name_of_another_domain() -> None:
    taken = hypernode_name("a-b", "X", "X", LEVEL_NAMES, hashed=False)
    forged = taken.removeprefix("a-")

    assert hypernode_name("a", forged, forged, LEVEL_NAMES, hashed=False) != taken
    assert hypernode_name("a", "b-c", "b-c", LEVEL_NAMES, hashed=False) != hypernode_name(
        "a-b", "c", "c", LEVEL_NAMES, hashed=False
    )


PLACES = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.tuples(*[st.sampled_from(["", "x", "y", "Z"]) for _ in range(3)]),
)


@given(PLACES, st.sampled_from([SETTINGS, HASHED]))
def test_the_hypernodes_of_every_tree_are_valid_and_have_its_domains(
    places: Mapping[str, tuple[str, ...]], settings: Topology
) -> None:
    tree = tree_of(places, settings)
    found = dict(volcano(tree, settings).hypernodes)

    assert not violations(found)
    assert not doubly_placed(found, tree.nodes)
    assert not with_two_tiers(found)
    domains = [domain for level in tree.domains for domain in level if not domain.own]
    assert sorted(sorted(nodes_of(found, name)) for name in found) == sorted(
        sorted(tree.nodes[domain.first : domain.end]) for domain in domains
    )


@given(PLACES, st.sampled_from([SETTINGS, HASHED]))
def test_nodes_share_labels_as_they_share_domains(places: Mapping[str, tuple[str, ...]], settings: Topology) -> None:
    tree = tree_of(places, settings)
    labels = node_labels(tree, settings)

    for level, domains in zip(tree.levels, tree.domains, strict=True):
        for domain in domains:
            inside = set(tree.nodes[domain.first : domain.end])
            value = labels[tree.nodes[domain.first]][f"level.gkm.io/{level}"]
            assert LABEL_VALUE.fullmatch(value)
            assert {name for name in labels if labels[name][f"level.gkm.io/{level}"] == value} == inside
