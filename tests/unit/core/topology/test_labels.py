"""The topology labels of a node."""

import pytest
from gkm.api.topology_settings import Topology, TopologyDefaults, TopologyLabels
from gkm.topology.labels import MalformedLabel, read, relevant_labels


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("region", "region"),
        ("topology.kubernetes.io/region", "region"),
        ("cluster", "cluster"),
        ("fabric.domain", "domain"),
        ("gkm.io/fabric-domain", "domain"),
        ("nvidia.com/gpu.clique", "domain"),
        ("block", "block"),
        ("topology.gkm.io/block", "block"),
        ("rack", "rack"),
        ("topology.kubernetes.io/rack", "rack"),
        ("gpu.flavor", "flavor"),
        ("gkm.io/gpu-flavor", "flavor"),
        ("nvidia.com/gpu.product", "flavor"),
        ("gkm.io/fabric-health", "health"),
    ],
)
def test_every_documented_label_is_read(label: str, field: str) -> None:
    assert getattr(read({label: "x1"}, Topology()), field) == "x1"


def test_the_first_label_that_a_node_has_counts() -> None:
    labels = {"nvidia.com/gpu.clique": "third", "gkm.io/fabric-domain": "second", "fabric.domain": "first"}
    found = []
    while labels:
        found.append(read(labels, Topology()).domain)
        labels.popitem()

    assert found == ["first", "second", "third"]


def test_an_empty_label_is_ignored() -> None:
    assert read({"fabric.domain": "", "gkm.io/fabric-domain": "d1"}, Topology()).domain == "d1"


def test_region_and_cluster_default_to_the_configured_ones() -> None:
    settings = Topology(defaults=TopologyDefaults(region="eu-1", cluster="a"))

    assert read({}, settings)[:2] == ("eu-1", "a")
    assert read({"region": "us-1"}, settings)[:2] == ("us-1", "a")


def test_other_missing_labels_are_empty() -> None:
    assert set(read({}, Topology())[2:]) == {""}


def test_configured_labels_replace_the_default_ones() -> None:
    settings = Topology(labels=TopologyLabels(block=["example.org/spine"]))

    assert read({"example.org/spine": "s1", "block": "b1"}, settings).block == "s1"
    assert read({"block": "b1"}, settings).block == ""


def test_flavors_of_the_agent_and_of_feature_discovery_are_the_same() -> None:
    ours = read({"gkm.io/gpu-flavor": "nvidia-h100-80gb-hbm3"}, Topology())
    theirs = read({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, Topology())

    assert ours.flavor == theirs.flavor


@pytest.mark.parametrize("value", ["a b", "a/b", "node:n1", "x" * 64, "-a", "a\n", "é", "a\x1b[31m"])
def test_an_invalid_label_value_is_refused_with_its_key_on_one_line(value: str) -> None:
    with pytest.raises(MalformedLabel) as caught:
        read({"rack": value}, Topology())

    assert "label rack is" in str(caught.value)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


def test_an_invalid_value_behind_the_one_that_counts_is_ignored() -> None:
    assert read({"rack": "r1", "topology.kubernetes.io/rack": "a b"}, Topology()).rack == "r1"


def test_all_topology_labels_of_a_node_are_shown() -> None:
    labels = {"rack": "r1", "topology.kubernetes.io/rack": "r2", "app": "x"}

    assert relevant_labels(labels, TopologyLabels()) == {"rack": "r1", "topology.kubernetes.io/rack": "r2"}
