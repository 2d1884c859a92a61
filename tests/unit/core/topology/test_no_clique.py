"""Nodes with a name that stands for no NVLink clique share no domain, whoever says the name."""

import json

import pytest
from gkm.api.computedomains import DomainNode
from gkm.api.topology_settings import Topology, TopologyLabels, TopologyLevel
from gkm.gpus.fabric import COMPLETED, decode
from gkm.topology.fabrics import tree_file
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.placements import FaultKind, PlacementFault, placements
from gkm.topology.survey import survey_nodes
from msgspec import convert
from support.topology.clusters import labeled

ZERO = "00000000-0000-0000-0000-000000000000"
NO_CLIQUES = [f"{ZERO}.0", f"{ZERO}.7", ZERO, "N.A", "0", "none"]
CLIQUE = "00000001-0000-4000-8000-000000000000.1"


def nodes(**labels: str) -> list[Node]:
    return [convert(labeled(f"h{at}", **labels), Node) for at in range(3)]


@pytest.mark.parametrize("name", NO_CLIQUES)
@pytest.mark.parametrize("key", ["nvidia__com/gpu__clique", "fabric__domain", "gkm__io/fabric-domain"])
def test_labels_with_it_leave_each_node_a_domain_of_its_own(key: str, name: str) -> None:
    listed = nodes(**{key: name})
    located = survey_nodes(listed, Topology()).located
    assert [one.location.domain for one in located] == ["node:h0", "node:h1", "node:h2"]
    assert {place[0] for place in label_placements(listed, Topology()).places.values()} == {""}


def test_the_next_label_counts_where_the_first_one_has_it() -> None:
    listed = nodes(fabric__domain="N.A", **{"nvidia__com/gpu__clique": CLIQUE})
    assert {one.location.domain for one in survey_nodes(listed, Topology()).located} == {CLIQUE}
    assert {place[0] for place in label_placements(listed, Topology()).places.values()} == {CLIQUE}


@pytest.mark.parametrize("labels", [TopologyLabels(), TopologyLabels(domain=["team/clique"])])
@pytest.mark.parametrize(
    ("level", "key"), [("nvlink", "team/clique"), ("nvl", "nvidia.com/gpu.clique"), ("nvlink", "own")]
)
def test_a_level_of_cliques_is_known_by_its_name_or_its_key(labels: TopologyLabels, level: str, key: str) -> None:
    settings = Topology(labels=labels, levels=[TopologyLevel(level, [key]), TopologyLevel("block")])
    places = label_placements(nodes(**{key.replace(".", "__"): f"{ZERO}.0"}), settings).places
    assert {place[0] for place in places.values()} == {""}


def test_a_name_of_zeros_is_one_like_others_at_a_level_of_switches() -> None:
    settings = Topology(levels=[TopologyLevel("leaf", ["leaf"])])
    assert set(label_placements(nodes(leaf="0"), settings).places.values()) == {("0",)}


@pytest.mark.parametrize("name", NO_CLIQUES)
def test_a_provider_that_says_it_places_nodes_at_wider_levels_only_and_the_fault_is_counted(name: str) -> None:
    inside = (Member("Node", "h0"), Member("Node", "h1"))
    found = placements(
        [HyperNode(name, "nvlink", inside), HyperNode("b0", "block", (Member("HyperNode", name),))],
        ("nvlink", "block"),
    )
    assert found.places == {"h0": ("", "b0"), "h1": ("", "b0")}
    assert found.quarantined == ()
    assert found.faults == (PlacementFault(FaultKind.NO_CLIQUE, (name,)),)
    assert found.faults[0].message == "1 HyperNodes of level nvlink with names that stand for no clique"


@pytest.mark.parametrize("name", NO_CLIQUES)
def test_a_file_that_says_it_leaves_the_nodes_in_the_domain_around_it(name: str) -> None:
    inner = {"name": name, "level": "nvlink", "nodes": ["h0", "h1"]}
    text = json.dumps({"domains": [{"name": "b0", "level": "block", "nodes": ["h2"], "domains": [inner]}]})
    found = placements(tree_file.parse(text.encode()), ("nvlink", "block"))
    assert found.places == {"h0": ("", "b0"), "h1": ("", "b0"), "h2": ("", "b0")}


def test_nvml_and_compute_domains_say_it_of_gpus_and_nodes_without_a_fabric() -> None:
    attached = decode(bytes(16), 0, COMPLETED, "Success")
    assert attached is not None
    assert attached.cluster_uuid == ""
    assert all(DomainNode("h0", name, 0, "Ready").isolated for name in NO_CLIQUES)
    assert not DomainNode("h0", CLIQUE, 0, "Ready").isolated
