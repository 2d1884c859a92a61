"""The provider `labels`."""

import pytest
from gkm.api.topology_settings import Topology, TopologyDefaults, TopologyLevel
from gkm.topology.labels import label_placements
from gkm.topology.quarantine import QuarantineReason
from support.topology.kube_lists import node

NPU = Topology(
    levels=[
        TopologyLevel("supernode", keys=["accelerator.example/supernode-new", "accelerator.example/supernode"]),
        TopologyLevel("spine"),
        TopologyLevel("cluster"),
    ],
    defaults=TopologyDefaults(cluster="a"),
)


def test_the_known_levels_have_the_keys_and_defaults_of_the_settings() -> None:
    settings = Topology(
        levels=[TopologyLevel(name) for name in ("nvlink", "rack", "block", "cluster", "region")],
        defaults=TopologyDefaults(region="eu", cluster="a"),
    )
    labels = {"gkm.io/fabric-domain": "d1", "topology.kubernetes.io/rack": "r1", "topology.gkm.io/block": "b1"}

    found = label_placements([node("n1", labels), node("n2", {"cluster": "b", "region": "us"})], settings)

    assert found.places == {"n1": ("d1", "r1", "b1", "a", "eu"), "n2": ("", "", "", "b", "us")}
    assert not found.quarantined


def test_labels_of_any_accelerator_place_nodes_without_nvidia_gpus() -> None:
    nodes = [
        node("n1", {"accelerator.example/supernode": "s1"}, gpus=None),
        node("n2", {"accelerator.example/supernode": "s1", "accelerator.example/supernode-new": "s2"}, gpus=None),
    ]

    assert label_placements(nodes, NPU).places == {"n1": ("s1", "", "a"), "n2": ("s2", "", "a")}


def test_nodes_without_gpus_and_domains_take_no_part() -> None:
    found = label_placements([node("cpu", {"cluster": "b"}, gpus=None)], NPU)

    assert not found.places
    assert not found.quarantined


@pytest.mark.parametrize("gpus", ["8", None])
def test_a_value_that_no_label_can_have_quarantines_the_node(gpus: object) -> None:
    found = label_placements([node("n1", {"accelerator.example/supernode": "a b"}, gpus), node("n2")], NPU)

    assert [(entry.node, entry.why) for entry in found.quarantined] == [("n1", QuarantineReason.LABEL_INVALID)]
    assert set(found.places) == {"n2"}


def test_nodes_of_one_name_are_quarantined() -> None:
    found = label_placements([node("n1"), node("n1", {"cluster": "b"}), node("n2")], NPU)

    assert [(entry.node, entry.why) for entry in found.quarantined] == [("n1", QuarantineReason.DUPLICATE_NAME)]
    assert set(found.places) == {"n2"}
